package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Outgoing is a message to send.
type Outgoing struct {
	// To is the recipient's name.
	To string
	// Body is any JSON value. It reaches the recipient byte for byte. Default
	// {}.
	Body json.RawMessage
	// ID makes sending again safe: the same message under the same id is
	// stored once. Default: a new UUIDv7.
	ID string
	// Kind is what the message is for. Default agentrelay.KindMessage.
	Kind agentrelay.Kind
	// ReplyTo, RootID and ParentID place the message in a conversation.
	ReplyTo, RootID, ParentID string
	// Ack asks for a receipt when the message is completed through a lease.
	Ack bool
}

// Sent is what the broker says of a message that it has stored.
type Sent struct {
	ID string
	// Duplicate says that the message was there already.
	Duplicate bool
	// Recipient tells whether the recipient is there to read it.
	Recipient agentrelay.Peer
}

// TextBody is the body {"text": text}. Invalid UTF-8 becomes U+FFFD.
func TextBody(text string) json.RawMessage {
	return append(agentrelay.AppendString([]byte(`{"text":`), text), '}')
}

// NewID makes a message id: a UUIDv7, so that ids made later sort later.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

// Send stores a message for its recipient: when it returns without an error
// the message outlasts a crash of the broker. After ErrUnreachable or
// ErrTimeout the message may or may not be stored; sent again with the same
// ID it is stored once. What cannot be a message is CodeBadRequest, and
// nothing is sent.
func (c *Client) Send(ctx context.Context, m Outgoing) (Sent, error) {
	if m.ID == "" {
		id, err := NewID()
		if err != nil {
			return Sent{}, err
		}
		m.ID = id
	}
	body, err := c.envelope(m)
	if err != nil {
		return Sent{}, err
	}
	var result struct {
		Accepted  bool   `json:"accepted"`
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
		Recipient struct {
			Online   bool    `json:"online"`
			LastSeen float64 `json:"lastSeen"`
		} `json:"recipient"`
	}
	err = c.do(ctx, call{method: http.MethodPost, target: "/messages", body: body}, &result,
		func() bool { return result.Accepted && result.ID == m.ID })
	if err != nil {
		return Sent{}, err
	}
	return Sent{
		ID: m.ID, Duplicate: result.Duplicate,
		Recipient: agentrelay.Peer{Agent: m.To, Online: result.Recipient.Online, LastSeen: epochTime(result.Recipient.LastSeen)},
	}, nil
}

// envelope writes what is posted, and holds it against the rules the broker
// goes by.
func (c *Client) envelope(m Outgoing) ([]byte, error) {
	if m.Body == nil {
		m.Body = json.RawMessage(`{}`)
	}
	if !json.Valid(m.Body) {
		return nil, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: "the body is not one valid JSON value"}
	}
	var b []byte
	for _, member := range []struct{ name, value string }{
		{"to", m.To},
		{"id", m.ID},
		{"kind", string(m.Kind)},
		{"replyTo", m.ReplyTo},
		{"rootId", m.RootID},
		{"parentId", m.ParentID},
	} {
		if member.value == "" {
			continue
		}
		if !utf8.ValidString(member.value) {
			return nil, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: `"` + member.name + `" is not valid UTF-8`}
		}
		b = appendText(b, member.name, member.value)
	}
	if m.Ack {
		b = append(b, `,"ack":true`...)
	}
	b = object(append(append(b, `,"body":`...), m.Body...))
	if _, err := agentrelay.ParseEnvelope(b, c.agent); err != nil {
		return nil, err
	}
	return b, nil
}

// PollOptions say which part of the inbox to read.
type PollOptions struct {
	// Since is the cursor of an earlier page, or the id of a message of this
	// inbox. Default: the beginning.
	Since string
	// Limit is the most messages to return. Default agentrelay.DefaultLimit.
	Limit int
	// MaxBytes is the most bytes of bodies to return; one message is returned
	// however large. Default agentrelay.MaxPageBytes.
	MaxBytes int
	// Wait is how long the broker holds the answer while there is no message.
	// Parts of a second count as one; a minute is the most.
	Wait time.Duration
}

// Page is a part of the inbox, oldest message first.
type Page struct {
	Messages []agentrelay.Message
	// Cursor is what to continue from; empty at the beginning of an inbox
	// where nothing was.
	Cursor string
	// Reset says that Since meant nothing to the broker, and that the page
	// begins with the oldest message it keeps.
	Reset bool
}

// Poll reads queued messages and changes nothing: they are there until they
// are acknowledged or expire.
func (c *Client) Poll(ctx context.Context, o PollOptions) (Page, error) {
	query := url.Values{}
	if o.Since != "" {
		query.Set("since", o.Since)
	}
	if o.Limit > 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.MaxBytes > 0 {
		query.Set("max_bytes", strconv.Itoa(o.MaxBytes))
	}
	wait := waitFor(o.Wait)
	if wait > 0 {
		query.Set("wait", strconv.FormatInt(wholeSeconds(wait), 10))
	}
	target := "/messages"
	if len(query) > 0 {
		// The protocol's + is no space.
		target += "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
	}
	var result struct {
		Messages *[]agentrelay.Message `json:"messages"`
		Cursor   string                `json:"cursor"`
		Reset    bool                  `json:"reset"`
	}
	err := c.do(ctx, call{method: http.MethodGet, target: target, wait: wait}, &result,
		func() bool { return result.Messages != nil })
	if err != nil {
		return Page{}, err
	}
	return Page{Messages: *result.Messages, Cursor: result.Cursor, Reset: result.Reset}, nil
}

// AckOptions say how a message ended. The zero value is success.
type AckOptions struct {
	// Failed ends the message as failed; Error is the text for its sender.
	// A text alone means failed, too.
	Failed bool
	Error  string
}

// Ack ends a message of the agent's own inbox: it is delivered no more, and
// its sender gets one receipt, whose id is returned. The first outcome counts;
// after it every Ack of the message returns the same id.
func (c *Client) Ack(ctx context.Context, id string, o AckOptions) (receiptID string, err error) {
	if id == "" {
		return "", errNoID
	}
	body := []byte(`{"status":"ok"}`)
	if o.Failed || o.Error != "" {
		body = appendText(nil, "status", "error")
		if o.Error != "" {
			body = appendText(body, "error", o.Error)
		}
		body = object(body)
	}
	var result struct {
		Accepted bool   `json:"accepted"`
		ID       string `json:"id"`
	}
	err = c.do(ctx, call{method: http.MethodPost, target: "/messages/" + url.PathEscape(id) + "/ack", body: body}, &result,
		func() bool { return result.Accepted && result.ID != "" })
	if err != nil {
		return "", err
	}
	return result.ID, nil
}
