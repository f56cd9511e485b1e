package store

import (
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// EventKind is what became of a message.
type EventKind string

// The kinds of events.
const (
	// EventAccepted: a new message, or a receipt, is in its recipient's inbox.
	EventAccepted EventKind = "accepted"
	// EventDelivered: the first hand-over was recorded, by Lease or Delivered.
	EventDelivered EventKind = "delivered"
	// EventDone: the message was acknowledged with success, or completed.
	EventDone EventKind = "done"
	// EventFailed: it was acknowledged with an error or cancelled, or its
	// attempts are spent.
	EventFailed EventKind = "failed"
	// EventExpired: its time was over. A message shows as expired from that
	// time on; the event comes when a sweep or the end of its lease records it.
	EventExpired EventKind = "expired"
	// EventRequeued: it was queued again, under a new position: its lease ran
	// out, was given back or ended with a retry, its expiry was taken back, or
	// an operator asked for it.
	EventRequeued EventKind = "requeued"
)

// Event is one step of one message, as it was committed. It holds the
// message's header and never its body.
type Event struct {
	Kind        EventKind
	ID          string
	From, To    string
	Type        agentrelay.Type
	MessageKind agentrelay.Kind
	// TS is when the message was accepted, At when this step was taken; for
	// EventDelivered, when the message was handed over.
	TS, At time.Time
	// Leased says of EventDelivered that Lease recorded it; see Undelivered.
	Leased bool
	// GivenUp says of EventFailed that attempts are spent, Cancelled that an
	// operator ended the message; else the recipient acknowledged it with an
	// error.
	GivenUp, Cancelled bool
	// Undelivered says of EventRequeued and EventExpired that the lease which
	// was given back had recorded the first hand-over, and that this no longer
	// counts: the EventDelivered that was reported is void, and there is
	// another when the message is handed over again.
	Undelivered bool
}

// Arrives reports whether the event put something to deliver into To's inbox.
func (e *Event) Arrives() bool { return e.Kind == EventAccepted || e.Kind == EventRequeued }

// Commit is what a durable commit was.
type Commit struct {
	// Operations is how many calls shared it.
	Operations int
	// Took is the time from its beginning until it was durable.
	Took time.Duration
}

// Stats is how much there is.
type Stats struct {
	// Queued and Leased count messages, over all inboxes. One whose time or
	// lease is over counts until that is recorded.
	Queued, Leased int
	// OldestQueued is when the queued message was accepted that was accepted
	// first; zero if none is queued.
	OldestQueued time.Time
	// DatabaseBytes is the size of what is stored, LogBytes that of the
	// write-ahead log, zero where a driver has none.
	DatabaseBytes, LogBytes int64
}
