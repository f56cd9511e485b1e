package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
)

// inbound stores an event.
func (l *link) inbound(ctx context.Context, f connector.Inbound) error {
	_, err := l.event(ctx, f, "")
	return handled(err)
}

// handled marks errors that the same frame would meet again.
func handled(err error) error {
	if err != nil && !passing(err) {
		return connector.Permanent(err)
	}
	return err
}

// event stores an event. salt tells events without any name apart.
func (l *link) event(ctx context.Context, f connector.Inbound, salt string) (broker.Sent, error) {
	event, err := agentrelay.ParseObject(f.Event)
	if err != nil {
		return broker.Sent{}, err
	}
	p := placeOf(event)
	return l.store(ctx, p, agentrelay.Message{
		ID: eventID(l.name, f.BufferID, p, f.Event, salt), Kind: agentrelay.KindMessage, Body: f.Event,
	})
}

// passthrough stores a platform's HTTP request as a request.
func (l *link) passthrough(ctx context.Context, f connector.Passthrough) error {
	headers := f.Headers
	if headers == nil {
		headers = [][2]string{}
	}
	body, err := encode(struct {
		Type     string      `json:"type"`
		Platform string      `json:"platform"`
		BotID    string      `json:"botId"`
		Method   string      `json:"method"`
		Path     string      `json:"path"`
		Headers  [][2]string `json:"headers"`
		Body     string      `json:"bodyB64"`
	}{"passthrough_forward", f.Platform, f.BotID, f.Method, f.Path, headers, base64.StdEncoding.EncodeToString(f.Body)})
	if err != nil {
		return connector.Permanent(err)
	}
	m := agentrelay.Message{Kind: agentrelay.KindRequest, Body: body}
	if f.BufferID != "" {
		m.ID = identify("passthrough", l.name, f.BufferID, string(body))
	}
	_, err = l.store(ctx, place{platform: f.Platform}, m)
	return handled(err)
}

// interrupted stores a platform's wish to break something off as a request.
func (l *link) interrupted(ctx context.Context, f connector.InterruptInbound) error {
	body, err := encode(struct {
		Type       string `json:"type"`
		SessionKey string `json:"session_key"`
		ChatID     string `json:"chat_id"`
	}{"interrupt_inbound", f.SessionKey, f.ChatID})
	if err != nil {
		return connector.Permanent(err)
	}
	_, err = l.store(ctx, place{chatID: f.ChatID}, agentrelay.Message{Kind: agentrelay.KindRequest, Body: body})
	return handled(err)
}

// encode writes JSON as it is read best, without the escapes of HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write a request: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// store sends something that came from a place on to its agent. It fails as
// Send does. What was stored before, in whatever spelling, is a duplicate.
func (l *link) store(ctx context.Context, from place, m agentrelay.Message) (broker.Sent, error) {
	to, ok := l.recipient(from)
	if !ok {
		return broker.Sent{}, &agentrelay.Error{
			Code:    agentrelay.CodeBadRequest,
			Message: "nobody is named in the config for events of this chat; add it to routes, or set deliver_to",
		}
	}
	if l.maxBody > 0 && int64(len(m.Body)) > l.maxBody {
		return broker.Sent{}, &agentrelay.Error{
			Code:    agentrelay.CodeBodyTooLarge,
			Message: fmt.Sprintf("the event is larger than the %d bytes this broker takes; raise max_body_bytes", l.maxBody),
		}
	}
	m.From, m.To, m.Type = l.name, to, agentrelay.TypeMessage
	sent, err := l.broker.Send(ctx, m)
	if errors.Is(err, agentrelay.ErrNoSuchAgent) { // it was removed meanwhile
		if err = l.broker.Introduce(ctx, to); err == nil {
			sent, err = l.broker.Send(ctx, m)
		}
	}
	if errors.Is(err, agentrelay.ErrIDConflict) {
		return broker.Sent{ID: m.ID, Duplicate: true}, nil
	}
	return sent, err
}

// recipient is who gets what came from a place.
func (l *link) recipient(from place) (agent string, ok bool) {
	for _, r := range l.Routes {
		if (r.Platform == "" || r.Platform == from.platform) && (r.ChatID == "" || r.ChatID == from.chatID) {
			return r.DeliverTo, true
		}
	}
	return l.DeliverTo, l.DeliverTo != ""
}
