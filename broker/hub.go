package broker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// EventKind is what happened.
type EventKind string

// The kinds of events. Those of messages have ID, From and To, the others
// Agent.
const (
	MessageAccepted  EventKind = "message_accepted"
	MessageDelivered EventKind = "message_delivered"
	MessageAcked     EventKind = "message_acked"
	// MessageFailed: it was acknowledged with an error or cancelled, or its
	// attempts are spent.
	MessageFailed   EventKind = "message_failed"
	MessageExpired  EventKind = "message_expired"
	MessageRequeued EventKind = "message_requeued"

	AgentRegistered EventKind = "agent_registered"
	AgentOnline     EventKind = "agent_online"
	AgentOffline    EventKind = "agent_offline"
	// AgentLocked: bad signatures locked the agent at one address.
	AgentLocked EventKind = "agent_locked"
	// AuthFailed: a request's credentials were refused. Agent is who it said it
	// is, empty if that is no name.
	AuthFailed EventKind = "auth_failed"
)

// Event is something that happened, with names and ids, and never a body.
type Event struct {
	Kind EventKind
	// At is when the broker took the step, or noticed.
	At           time.Time
	ID, From, To string
	Agent        string
	// Reason says of AuthFailed why.
	Reason agentrelay.Reason
}

// Hub is told what happens, and tells those who want to know: polls that wait,
// the other parts of this process, and subscribers from outside.
type Hub struct {
	arrivals *arrivals

	mu sync.Mutex
	// followers and subscribers are replaced, never changed.
	followers   atomic.Pointer[[]func([]store.Event)]
	subscribers atomic.Pointer[[]*subscriber]
}

type subscriber struct{ tell func(Event) }

// NewHub returns a hub that tells nobody.
func NewHub() *Hub {
	h := &Hub{arrivals: newArrivals()}
	h.followers.Store(&[]func([]store.Event){})
	h.subscribers.Store(&[]*subscriber{})
	return h
}

// Observe is for the store's Options. It does not block.
func (h *Hub) Observe(events []store.Event) {
	h.arrivals.observe(events)
	for _, tell := range *h.followers.Load() {
		tell(events)
	}
	if len(*h.subscribers.Load()) == 0 {
		return
	}
	told := make([]Event, 0, len(events))
	for i := range events {
		if e := &events[i]; messageKinds[e.Kind] != "" {
			told = append(told, Event{Kind: messageKinds[e.Kind], At: e.At, ID: e.ID, From: e.From, To: e.To})
		}
	}
	h.tell(told...)
}

var messageKinds = map[store.EventKind]EventKind{
	store.EventAccepted:  MessageAccepted,
	store.EventDelivered: MessageDelivered,
	store.EventDone:      MessageAcked,
	store.EventFailed:    MessageFailed,
	store.EventExpired:   MessageExpired,
	store.EventRequeued:  MessageRequeued,
}

// Follow has tell called with what the store tells, and as it does: in order,
// never twice at once, before those answer who caused it. tell must not block,
// nor keep what it is given.
func (h *Hub) Follow(tell func([]store.Event)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append(slices.Clone(*h.followers.Load()), tell)
	h.followers.Store(&all)
}

// Subscribe has tell called with each event from now on, one after the other,
// until cancel was called: then no call is under way, and none comes. tell must
// not block, call the broker, nor cancel.
func (h *Hub) Subscribe(tell func(Event)) (cancel func()) {
	s := &subscriber{tell}
	h.change(func(all []*subscriber) []*subscriber { return append(all, s) })
	return func() {
		h.change(func(all []*subscriber) []*subscriber {
			return slices.DeleteFunc(all, func(other *subscriber) bool { return other == s })
		})
	}
}

func (h *Hub) change(to func([]*subscriber) []*subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := to(slices.Clone(*h.subscribers.Load()))
	h.subscribers.Store(&all)
}

// tell tells the subscribers, if there are any.
func (h *Hub) tell(events ...Event) {
	if len(*h.subscribers.Load()) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		for _, s := range *h.subscribers.Load() {
			s.tell(e)
		}
	}
}

// Subscribe has tell called with what happens; see Hub.Subscribe.
func (b *Broker) Subscribe(tell func(Event)) (cancel func()) { return b.hub.Subscribe(tell) }
