package sqlite

import (
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// report notes a step of a message, to be told when it is committed. What it
// returns may be added to until then.
func (t *tx) report(kind store.EventKind, m *agentrelay.Message) *store.Event {
	if t.events == nil {
		t.events = make([]store.Event, 0, t.expected)
	}
	t.events = append(t.events, store.Event{
		Kind: kind, ID: m.ID, From: m.From, To: m.To, Type: m.Type, MessageKind: m.Kind,
		TS: m.TS, At: time.UnixMilli(t.wall),
	})
	return &t.events[len(t.events)-1]
}
