// Package store is the contract between the broker and whatever keeps its
// messages. Every driver passes the suite in storetest.
//
// Each method is one atomic use case. A method that writes returns only after
// its change is durable: what it answered survives a crash of the process and
// of the machine. Times come from Options.Clock; order never depends on them.
//
// # States
//
//	           lease                 settle completed, ack ok
//	queued ───────────────> leased ──────────────────────────> done
//	   ^   <─────────────── │   │     attempts spent, ack error
//	   │    retry, lapse,   │   └──────────────────────────────> failed
//	   │    given back      │
//	   └─ queued or lapsed past its time to live ─────────────> expired
//
// An acknowledgement ends a message in any state. A message that is queued
// again takes a new position, so that it is seen again. An operator may cancel
// what is queued or leased, which makes it failed, and requeue a message in any
// state.
//
// # Events
//
// Options.Observe is told each step that a message takes, once: what was rolled
// back is not reported, nor is what found everything as it should be, such as a
// duplicate or a repeated settlement. Calls of Observe follow the order of
// commits and never overlap; in a call events stand in the order of the
// operations, and a message's own step before the receipt that it causes. They
// come before the call that caused them returns, so an observer must not block,
// nor call the store. The slice is not used again, and must not be changed:
// others may read it too. Events are not stored; those of a commit that a crash
// follows may be lost.
//
// A step is an arrow above, or an acceptance, or the first hand-over. Taking a
// lease and renewing it is none, nor is the erasure of a body. Giving a lease
// back that recorded the first hand-over makes that one void; the event then
// says Undelivered.
//
// # Errors
//
// Methods return *agentrelay.Error where the caller is at fault or the fault
// is one of the protocol's (CodeStorageFull, CodeBusy); anything else is an
// internal fault. After a failed commit the store refuses all writes, and
// Failed tells why.
package store

import (
	"context"
	"encoding/json"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Store keeps agents and their messages.
type Store interface {
	Registry
	Inboxes

	// Epoch is the random name of this database, made with it.
	Epoch() string

	// Sweep does what time has made due: leases that are over, expiry, the
	// erasure of bodies, the removal of rows. It does a bounded amount and
	// returns how long until it should be called again.
	Sweep(ctx context.Context) (next time.Duration, err error)

	// Stats tells how much there is. What it costs may grow with what is queued
	// and leased, so callers keep its answer for a while; it hinders no write.
	Stats(ctx context.Context) (Stats, error)
	// Probe makes a durable write, to show that the store can.
	Probe(ctx context.Context) error
	// Failed is closed when the store can no longer write and must be opened
	// anew; Err then says why.
	Failed() <-chan struct{}
	Err() error
	// Close waits for what was begun, and releases the database.
	Close() error
}

// Inboxes are the messages.
type Inboxes interface {
	// Enqueue stores a message under the next position of its recipient's
	// inbox and sets its TS. A message of the same id is looked for first: an
	// equal one is reported as a duplicate and nothing is stored, any other is
	// CodeIDConflict. Then CodeNoSuchAgent if the recipient is not registered,
	// and CodeQueueFull if with the message more would wait there than
	// Options.MaxQueued or MaxQueuedBytes allow.
	Enqueue(ctx context.Context, m agentrelay.Message) (Enqueued, error)
	// Known tells what Enqueue would say of a message without storing it: that
	// it is a duplicate, or its error. Without either it would be stored, as
	// things stand.
	Known(ctx context.Context, m agentrelay.Message) (Enqueued, error)
	// Acknowledge ends a message of agent's inbox as done or failed, and puts
	// one receipt into its sender's inbox. The first outcome of a message
	// wins: repeated, whatever the outcome now named, it returns the id of the
	// same receipt. CodeNoSuchMessage, CodeForbidden if the inbox is not
	// agent's, CodeBadRequest for a receipt.
	Acknowledge(ctx context.Context, a Acknowledgement) (receiptID string, err error)

	// Poll returns queued messages of an inbox after a cursor, oldest first,
	// after queueing again what is due there. It changes nothing else.
	Poll(ctx context.Context, q PollQuery) (Page, error)
	// Delivered records the first hand-over of messages at the given time;
	// messages handed over before keep their time.
	Delivered(ctx context.Context, ids []string, at time.Time) error

	// Lease takes the oldest queued messages of an inbox, after queueing again
	// what is due there. Each gets a lease id of its own; the first hand-over
	// is recorded with it.
	Lease(ctx context.Context, r LeaseRequest) ([]Leased, error)
	// Settle ends a lease. The lease and outcome that ended a lease, repeated,
	// answer as before. CodeNoSuchMessage, CodeForbidden, CodeNotLeased,
	// CodeLeaseMismatch, in this order. A lease that is over ends in the same
	// transaction as the call that comes too late.
	Settle(ctx context.Context, s Settlement) (Settled, error)
	// Renew makes a lease last for the given time from now. Errors as Settle.
	Renew(ctx context.Context, r Renewal) (until time.Time, err error)
	// Release gives leases back whose messages never reached the agent: they
	// are queued again, the attempt is not counted, and a first hand-over that
	// the lease recorded is taken back. Leases that ended meanwhile are passed
	// over.
	Release(ctx context.Context, agent string, leased []Leased) error

	// Messages returns those of ids that agent sent or received, by id.
	Messages(ctx context.Context, agent string, ids []string) (map[string]agentrelay.Message, error)
	// Query returns messages of agent's inbox that still have their body,
	// newest first, in any state.
	Query(ctx context.Context, f Filter) ([]agentrelay.Message, error)

	// Requeue queues a message again for an operator, whatever became of it:
	// as if it had just been sent, but with its id and first position. Attempts
	// and error are cleared, its time to live begins anew, and its next outcome
	// gets a receipt of its own. CodeNoSuchMessage; CodeBadRequest once the body
	// is erased.
	Requeue(ctx context.Context, id string) error
	// Cancel makes a message that is queued or leased failed, with the error
	// Cancelled, and puts an error receipt into its sender's inbox, unless it is
	// a receipt itself. Repeating it is harmless. CodeNoSuchMessage;
	// CodeBadRequest if the message ended otherwise.
	Cancel(ctx context.Context, id string) error
}

// Options are what every driver needs to be opened.
type Options struct {
	// Clock tells the time. Default SystemClock.
	Clock Clock
	// NewID makes ids for receipts and leases. Default UUIDv7.
	NewID func() string
	// TTL is how long after its TS a message expires. Default 7 days. What is
	// left of it is removed TombstoneTTL later.
	TTL time.Duration
	// MaxAttempts is how many failed deliveries a message survives. Default 3.
	MaxAttempts int
	// MaxQueued and MaxQueuedBytes bound what may wait in one inbox; see Agent.
	// Default 10,000 messages and 64 MiB.
	MaxQueued      int
	MaxQueuedBytes int64
	// Observe is called after a commit that changed messages, with all that it
	// did; see Events. Default: nobody observes.
	Observe func([]Event)
	// Damaged is called when something stored turns out to be damaged, once for
	// each thing. It must not block. Default: nobody is told.
	Damaged func(Damage)
	// Committed is called after each commit, also of one that changed no
	// message. It must not block. Default: nobody is told.
	Committed func(Commit)
}

// What may wait in one inbox, unless Options say otherwise.
const (
	DefaultMaxQueued      = 10_000
	DefaultMaxQueuedBytes = 64 << 20
)

const (
	// EraseAfter is how long, of monotonic time, a body is kept after its
	// message was first seen to have expired: a clock that jumps forward and
	// back loses nothing.
	EraseAfter = time.Hour
	// TombstoneTTL is how long id, fingerprint and outcome are kept after the
	// body was erased.
	TombstoneTTL = 7 * 24 * time.Hour
	// LeaseGrace is how long a lease lives on after the start if it ran out
	// while the store was closed. Its end is not counted as an attempt.
	LeaseGrace = 30 * time.Second
	// ClockTolerance is how far the wall clock may part from monotonic time
	// before it counts as having jumped.
	ClockTolerance = time.Second
)

// Cancelled is the error of a message that an operator ended.
const Cancelled = "cancelled"

// Damage is something stored that is not as it was written. A damaged message
// is never delivered.
type Damage struct {
	// ID is that of the message, if it is one.
	ID string
	// What says what was found.
	What string
}

// Enqueued is the result of Enqueue.
type Enqueued struct {
	Duplicate bool
	TS        time.Time
}

// Acknowledgement is how the recipient ends a message.
type Acknowledgement struct {
	Agent, ID string
	// Failed tells an error from a success; Error is its text.
	Failed bool
	Error  string
	// Body is the body of the receipt that this makes, a JSON value. Default:
	// {"status":"ok"}, or {"status":"error","error":Error}.
	Body json.RawMessage
}

// PollQuery asks for a page of an inbox.
type PollQuery struct {
	Agent string
	// Since is a cursor's text, or the id of a message of this inbox, which
	// stands for that message's first position; empty is the beginning.
	Since           string
	Limit, MaxBytes int
}

// Page is what Poll found. Cursor is that of the last message, or Since if
// there is none. Reset says that Since was not of this inbox, or no longer,
// and that the page begins at the beginning.
type Page struct {
	Messages []agentrelay.Message
	Cursor   string
	Reset    bool
}

// LeaseRequest asks for messages to work on.
type LeaseRequest struct {
	Agent           string
	Limit, MaxBytes int
	For             time.Duration
}

// Leased is a message under a lease. First says that the lease was the first
// hand-over of the message.
type Leased struct {
	agentrelay.Message
	First bool
	// InPlace, set by who gives the lease back, has Release queue the message
	// where it stood, and not behind the others. That is for inboxes that nobody
	// polls: a cursor may have passed the place.
	InPlace bool
}

// Settlement ends a lease. Error is kept with a retry.
type Settlement struct {
	Agent, ID, LeaseID string
	Outcome            agentrelay.Outcome
	Error              string
}

// Settled is where a settlement left the message.
type Settled struct {
	Status   agentrelay.Status
	Attempts int
}

// Renewal prolongs a lease.
type Renewal struct {
	Agent, ID, LeaseID string
	For                time.Duration
}

// Filter selects messages of Agent's inbox. Empty members select all. To select
// by ID, or what is leased, costs what is found; all else, up to what is kept.
type Filter struct {
	Agent, ID       string
	Kind            agentrelay.Kind
	Status          agentrelay.Status
	From, To        string
	Limit, MaxBytes int
}

// Clock is the wall clock and monotonic time.
type Clock interface {
	// Now is wall time; it may jump.
	Now() time.Time
	// Elapsed is monotonic time since some fixed instant.
	Elapsed() time.Duration
}

// SystemClock is the machine's clock.
type SystemClock struct{}

var processStart = time.Now()

// Now returns time.Now.
func (SystemClock) Now() time.Time { return time.Now() }

// Elapsed returns the monotonic time since the process began.
func (SystemClock) Elapsed() time.Duration { return time.Since(processStart) }
