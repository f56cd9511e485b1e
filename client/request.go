package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
)

// ErrUndelivered says that a request was ended without a reply: its recipient
// refused it, or never came for it.
var ErrUndelivered = errors.New("the request was not answered")

// Reply is the answer to a message, to be sent with Send.
func Reply(to agentrelay.Message, body json.RawMessage) Outgoing {
	root := to.RootID
	if root == "" {
		root = to.ID
	}
	return Outgoing{
		To: to.From, Body: body, Kind: agentrelay.KindReply,
		ReplyTo: to.ID, ParentID: to.ID, RootID: root,
	}
}

// Request is Ask, and acknowledges the reply. One that could not be
// acknowledged stays in the inbox, and is returned with that error.
func (c *Client) Request(ctx context.Context, m Outgoing) (agentrelay.Message, error) {
	reply, err := c.Ask(ctx, m)
	if err == nil {
		_, err = c.Ack(ctx, reply.ID, AckOptions{})
	}
	return reply, err
}

// Ask sends m as a request and waits for the reply: the message of the
// recipient whose parentId is the request's id. It registers the agent, so
// that the reply can be sent. The reply stays in the inbox until the caller
// acknowledges it. An error receipt ends the wait with ErrUndelivered, and ctx
// with its error: bound it, since nobody need answer. A reply that comes later
// stays in the inbox.
//
// Sent again under the same ID, a request also finds the reply that came to it
// before and was not acknowledged. The reply is read, not pulled: an agent that
// asks lets no Work take it first.
func (c *Client) Ask(ctx context.Context, m Outgoing) (agentrelay.Message, error) {
	if err := c.Register(ctx); err != nil {
		return agentrelay.Message{}, err
	}
	// The reply comes after what is there now.
	newest, err := c.Recent(ctx, 1)
	if err != nil {
		return agentrelay.Message{}, err
	}
	since := ""
	if len(newest) > 0 {
		since = newest[0].ID
	}
	m.Kind = agentrelay.KindRequest
	sent, err := c.Send(ctx, m)
	if err != nil {
		return agentrelay.Message{}, err
	}
	if sent.Duplicate {
		since = "" // the reply may be there already
	}
	r, err := c.newReader(ctx, MessagesOptions{Since: since})
	if err != nil {
		return agentrelay.Message{}, err
	}
	r.away = false // registered above
	var reply agentrelay.Message
	var refused error
	err = r.run(ctx, func(got agentrelay.Message, _ error) bool {
		if got.From != m.To {
			return true
		}
		switch {
		case got.Type == agentrelay.TypeAck && got.ReplyTo == sent.ID:
			refused = refusal(got)
			return refused == nil
		case got.Type == agentrelay.TypeMessage && got.ParentID == sent.ID:
			reply = got
			return false
		}
		return true
	})
	switch {
	case refused != nil:
		return agentrelay.Message{}, refused
	case !errors.Is(err, errLeft):
		return agentrelay.Message{}, err
	}
	return reply, nil
}

// refusal is the error that an error receipt tells; nil for any other.
func refusal(receipt agentrelay.Message) error {
	var body struct{ Status, Error string }
	if json.Unmarshal(receipt.Body, &body) != nil || body.Status != "error" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUndelivered, body.Error)
}
