package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

// Hooks runs what users installed for kinds of events.
type Hooks interface {
	// Installed tells whether an event would run something, or fail. It is
	// asked for every message.
	Installed(hook.Kind) bool
	// FireLater runs an event when there is time, and does not wait. It
	// reports false if the event was dropped.
	FireLater(hook.Kind, json.RawMessage) bool
	// Enforce runs an event and returns what came of it.
	Enforce(context.Context, hook.Kind, json.RawMessage) hook.Result
}

// Boundaries fires hooks when a message enters the broker and when it leaves
// (PROTOCOL.md, "Hooks"). Receipts fire none.
type Boundaries struct {
	hooks   Hooks
	enforce bool
	// channel names the channel of a message.
	channel func(*agentrelay.Message) string

	mu      sync.Mutex
	sending map[string]*sending
}

// NewBoundaries returns boundaries that fire hooks; nil are none. With enforce
// the hooks of messages that enter decide whether they may.
func NewBoundaries(hooks Hooks, enforce bool) *Boundaries {
	return &Boundaries{hooks: hooks, enforce: enforce && hooks != nil, channel: ownChannel, sending: map[string]*sending{}}
}

// ownChannel is the channel of messages between agents.
func ownChannel(*agentrelay.Message) string { return "relay" }

// Channels has hooks be told of the channels that some messages come from or go
// to. name returns "" for all others; the message it is given may lack its body,
// and must not be changed. It is to be called before the broker is opened.
func (b *Boundaries) Channels(name func(*agentrelay.Message) string) {
	b.channel = func(m *agentrelay.Message) string { return cmp.Or(name(m), ownChannel(m)) }
}

// observe fires for what polls handed over first, as the store tells it. It
// does not block.
func (b *Boundaries) observe(events []store.Event) {
	for i := range events {
		if e := &events[i]; e.Kind == store.EventDelivered && !e.Leased {
			b.left(&agentrelay.Message{ID: e.ID, From: e.From, To: e.To, TS: e.TS, Type: e.Type, Kind: e.MessageKind}, e.At)
		}
	}
}

// left fires for a message that was handed over for the first time.
func (b *Boundaries) left(m *agentrelay.Message, at time.Time) {
	if b.hooks != nil && m.Type == agentrelay.TypeMessage && b.hooks.Installed(hook.PostMessage) {
		b.hooks.FireLater(hook.PostMessage, b.postMessage(m, at))
	}
}

// entered fires for a message that was stored and no hook was asked about.
func (b *Boundaries) entered(m *agentrelay.Message, at time.Time) {
	if b.hooks != nil && !b.enforce && b.hooks.Installed(hook.PreMessage) {
		b.hooks.FireLater(hook.PreMessage, b.preMessage(m, at))
	}
}

// asks reports whether a hook decides on messages that enter.
func (b *Boundaries) asks() bool { return b.enforce && b.hooks.Installed(hook.PreMessage) }

// ask has the hooks decide on a message. A script that says no is
// CodeHookRejected, anything else that goes wrong CodeBusy: nobody decided.
func (b *Boundaries) ask(ctx context.Context, m *agentrelay.Message, at time.Time) error {
	result := b.hooks.Enforce(ctx, hook.PreMessage, b.preMessage(m, at))
	if result.OK {
		return nil
	}
	for _, f := range result.Errors {
		if f.Code > 0 {
			return &agentrelay.Error{
				Code:    agentrelay.CodeHookRejected,
				Message: fmt.Sprintf("the broker's pre-message hook %s refuses this message", f.Script),
			}
		}
	}
	text := "a pre-message hook of the broker failed"
	if len(result.Errors) > 0 {
		text = fmt.Sprintf("the broker's pre-message hook %s did not decide (%s)", result.Errors[0].Script, fault(result.Errors[0]))
	}
	return &agentrelay.Error{
		Code: agentrelay.CodeBusy, RetryAfter: time.Second,
		Message: text + "; nothing was stored; try again, or have the broker's operator mend it",
	}
}

// fault says why a script did not decide. What it wrote stays with the broker.
func fault(f hook.Failure) string {
	if f.Reason != "" {
		return f.Reason
	}
	return "it was killed"
}

// sending is a message on which hooks decide.
type sending struct {
	from        string
	fingerprint [32]byte
	// over is closed when it is known whether it was stored; err is why not.
	over chan struct{}
	err  error
}

// begin enters a message whose id nobody else is sending; else it returns what
// is under way, to be waited for.
func (b *Boundaries) begin(m *agentrelay.Message) (mine, other *sending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.sending[m.ID]; other != nil {
		return nil, other
	}
	mine = &sending{from: m.From, fingerprint: m.Fingerprint(), over: make(chan struct{})}
	b.sending[m.ID] = mine
	return mine, nil
}

func (b *Boundaries) end(id string, s *sending, err error) {
	b.mu.Lock()
	delete(b.sending, id)
	b.mu.Unlock()
	s.err = err
	close(s.over)
}

// preMessage is the payload for a message that enters. message is for scripts
// that want text: the body's text, or else its JSON.
func (b *Boundaries) preMessage(m *agentrelay.Message, at time.Time) json.RawMessage {
	p := payload(at, b.channel(m), m.From)
	p = agentrelay.AppendString(append(p, `,"message":`...), plainText(m.Body))
	p = appendHeader(p, m)
	p = append(p, `,"reply_to":`...)
	if m.ReplyTo == "" {
		p = append(p, "null"...)
	} else {
		p = agentrelay.AppendString(p, m.ReplyTo)
	}
	return append(append(append(p, `,"body":`...), m.Body...), '}')
}

// plainText is a body's text, or else its JSON without space.
func plainText(body json.RawMessage) string {
	var object map[string]json.RawMessage
	var text *string
	if json.Unmarshal(body, &object) == nil && json.Unmarshal(object["text"], &text) == nil && text != nil {
		return *text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return string(body)
	}
	return compact.String()
}

// postMessage is the payload for a message that left.
func (b *Boundaries) postMessage(m *agentrelay.Message, at time.Time) json.RawMessage {
	p := payload(at, b.channel(m), m.To)
	p = strconv.AppendInt(append(p, `,"duration_ms":`...), max(0, at.Sub(m.TS).Milliseconds()), 10)
	return append(appendHeader(p, m), '}')
}

func payload(at time.Time, channel, user string) []byte {
	b := append(agentrelay.AppendTime([]byte(`{"timestamp":"`), at), `","channel":`...)
	b = append(agentrelay.AppendString(b, channel), `,"user_id":`...)
	return agentrelay.AppendString(b, user)
}

func appendHeader(b []byte, m *agentrelay.Message) []byte {
	for _, member := range []struct{ name, value string }{
		{"message_id", m.ID}, {"from", m.From}, {"to", m.To}, {"kind", string(m.Kind)},
	} {
		b = agentrelay.AppendString(append(b, `,"`+member.name+`":`...), member.value)
	}
	return b
}
