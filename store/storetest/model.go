package storetest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// model is what a store should do, on maps and slices. Its methods are those
// of store.Store where they write; what they leave to the store, ids and the
// order of what a sweep queues, the machine fills in from the store.
type model struct {
	clock       *Clock
	epoch       string
	ttl         time.Duration
	maxAttempts int
	maxQueued   int
	maxBytes    int64

	agents map[string]*inbox
	rows   map[string]*row

	// steady is the clock by which leases and erasure are measured, as of
	// elapsed; opened is when the store was opened, by steady.
	steady, opened time.Time
	elapsed        time.Duration
	// forgetFrom is the monotonic time before which no row is removed.
	forgetFrom time.Duration

	// What the current call did: the rows it queued, by inbox, the receipts it
	// made, and the steps that must have been observed.
	queued map[string][]*row
	made   []receipt
	steps  []step
}

// step is an event of a message, whose id may not be known yet.
type step struct {
	row *row
	// event lacks what the row tells.
	event store.Event
}

type inbox struct {
	registered bool
	lastSeen   time.Time
	position   int64       // of the last message queued
	set        store.Agent // what was set for it, and its keys
}

type row struct {
	agentrelay.Message
	fingerprint     [32]byte
	first, position int64
	lease           string
	firstHandOver   bool // by the current lease
	ended           map[ending]store.Settled
	receipt         string // id of the one receipt
	notice          bool   // a receipt of the store's own
	givenUp         bool   // Error is the store's own words
	expires         time.Time
	stage           stage
	due             time.Time // erasure when seen, removal when erased
}

// stage is how far a message is on its way out.
type stage int

const (
	retained stage = iota
	seen           // to have expired
	erased
)

// ending is what ended a lease.
type ending struct {
	lease   string
	outcome agentrelay.Outcome
}

// receipt is one that the store must have made about a message, under an id
// of its own. Its text is known in full, or how it begins.
type receipt struct {
	row, about *row
	failed     bool
	text       string
}

func newModel(clock *Clock, epoch string, o store.Options) *model {
	m := &model{
		clock: clock, epoch: epoch, ttl: o.TTL, maxAttempts: o.MaxAttempts, maxQueued: o.MaxQueued, maxBytes: o.MaxQueuedBytes,
		agents: map[string]*inbox{}, rows: map[string]*row{},
	}
	m.open()
	return m
}

// begin forgets what the last call did.
func (m *model) begin() {
	m.queued, m.made, m.steps = map[string][]*row{}, nil, nil
}

// took notes a step of a message.
func (m *model) took(r *row, e store.Event) {
	if e.At.IsZero() {
		e.At = m.clock.Now()
	}
	m.steps = append(m.steps, step{r, e})
}

func (m *model) inbox(agent string) *inbox {
	if m.agents[agent] == nil {
		m.agents[agent] = &inbox{}
	}
	return m.agents[agent]
}

func (m *model) register(agent string, at time.Time) {
	m.inbox(agent).registered = true
	m.touch(agent, at)
}

func (m *model) touch(agent string, at time.Time) {
	if b := m.inbox(agent); b.registered && b.lastSeen.Before(at) {
		b.lastSeen = at
	}
}

func (m *model) enqueue(msg agentrelay.Message) (store.Enqueued, error) {
	if r := m.rows[msg.ID]; r != nil {
		if r.fingerprint != msg.Fingerprint() {
			return store.Enqueued{}, agentrelay.ErrIDConflict
		}
		return store.Enqueued{Duplicate: true, TS: r.TS}, nil
	}
	if !m.inbox(msg.To).registered {
		return store.Enqueued{}, agentrelay.ErrNoSuchAgent
	}
	most := m.maxQueued
	if own := m.inbox(msg.To).set.MaxQueued; own > 0 {
		most = int(own)
	}
	if n, size := m.waits(msg.To); n >= most || size+int64(len(msg.Body)) > m.maxBytes {
		return store.Enqueued{}, agentrelay.ErrQueueFull
	}
	return store.Enqueued{TS: m.insert(msg).TS}, nil
}

func (m *model) insert(msg agentrelay.Message) *row {
	r := &row{Message: msg, fingerprint: msg.Fingerprint(), ended: map[ending]store.Settled{}}
	r.TS = m.clock.Now()
	r.expires = r.TS.Add(m.ttl)
	m.rows[r.ID] = r
	m.place(r)
	r.first = r.position
	m.took(r, store.Event{Kind: store.EventAccepted})
	return r
}

// queue queues a message again. Undelivered is that of the event.
func (m *model) queue(r *row, undelivered bool) {
	m.place(r)
	m.took(r, store.Event{Kind: store.EventRequeued, Undelivered: undelivered})
}

// place gives a message the next position.
func (m *model) place(r *row) {
	b := m.inbox(r.To)
	b.position++
	r.Status, r.position, r.stage = agentrelay.StatusQueued, b.position, retained
	m.queued[r.To] = append(m.queued[r.To], r)
}

// send makes the one receipt of a message.
func (m *model) send(about *row, failed bool, text string) {
	r := m.insert(agentrelay.Message{
		ID: "receipt of " + about.ID, From: about.To, To: about.From, Type: agentrelay.TypeAck,
		Kind: agentrelay.KindMessage, ReplyTo: about.ID,
	})
	about.receipt, r.notice = r.ID, true
	m.made = append(m.made, receipt{row: r, about: about, failed: failed, text: text})
}

// named gives a receipt the id and body it has in the store.
func (m *model) named(r receipt, id string, body []byte) {
	delete(m.rows, r.row.ID)
	r.row.ID, r.row.Body, r.about.receipt = id, body, id
	r.row.fingerprint = r.row.Fingerprint()
	m.rows[id] = r.row
}

// own returns a message that must be in agent's inbox.
func (m *model) own(agent, id string) (*row, error) {
	r := m.rows[id]
	if r == nil {
		return nil, agentrelay.ErrNoSuchMessage
	}
	if r.To != agent {
		return nil, agentrelay.ErrForbidden
	}
	return r, nil
}

// acknowledge leaves the receipt's id in the row.
func (m *model) acknowledge(a store.Acknowledgement) (*row, error) {
	r, err := m.own(a.Agent, a.ID)
	if err != nil {
		return nil, err
	}
	if r.Type == agentrelay.TypeAck {
		return nil, agentrelay.ErrBadRequest
	}
	if r.receipt != "" {
		return r, nil
	}
	if r.Status == agentrelay.StatusDone {
		m.send(r, false, "")
		return r, nil
	}
	r.endLease()
	r.Status = agentrelay.StatusDone
	e := store.Event{Kind: store.EventDone}
	if a.Failed {
		r.Status, r.Error = agentrelay.StatusFailed, a.Error
		e.Kind = store.EventFailed
	}
	m.took(r, e)
	m.send(r, a.Failed, a.Error)
	return r, nil
}

func (m *model) delivered(ids []string, at time.Time) {
	for _, id := range ids {
		if r := m.rows[id]; r != nil && r.DeliveredAt.IsZero() {
			r.DeliveredAt = at
			m.took(r, store.Event{Kind: store.EventDelivered, At: at})
		}
	}
}

// take leases a message under the id that the store gave the lease.
func (m *model) take(r *row, lease string, d time.Duration) {
	r.Status, r.lease, r.LeaseUntil = agentrelay.StatusLeased, lease, m.steady.Add(d)
	if r.firstHandOver = r.DeliveredAt.IsZero(); r.firstHandOver {
		r.DeliveredAt = m.clock.Now()
		m.took(r, store.Event{Kind: store.EventDelivered, Leased: true})
	}
}

func (r *row) endLease() {
	r.lease, r.LeaseUntil, r.firstHandOver = "", time.Time{}, false
}

// leased returns a message that must be leased under a lease.
func (m *model) leased(agent, id, lease string) (*row, error) {
	r, err := m.own(agent, id)
	switch {
	case err != nil:
		return nil, err
	case r.Status != agentrelay.StatusLeased:
		return nil, agentrelay.ErrNotLeased
	case r.lease != lease:
		return nil, agentrelay.ErrLeaseMismatch
	}
	return r, nil
}

func (m *model) settle(s store.Settlement) (store.Settled, error) {
	if r, err := m.own(s.Agent, s.ID); err == nil {
		if settled, ok := r.ended[ending{s.LeaseID, s.Outcome}]; ok {
			return settled, nil
		}
	}
	r, err := m.leased(s.Agent, s.ID, s.LeaseID)
	if err != nil {
		return store.Settled{}, err
	}
	if s.Outcome == agentrelay.OutcomeCompleted {
		r.endLease()
		r.Status = agentrelay.StatusDone
		m.took(r, store.Event{Kind: store.EventDone})
		if r.Ack && r.receipt == "" {
			m.send(r, false, "")
		}
	} else {
		if s.Error != "" {
			r.Error = s.Error
		}
		m.deliveryFailed(r, true, false)
	}
	settled := store.Settled{Status: r.Status, Attempts: r.Attempts}
	r.ended[ending{s.LeaseID, s.Outcome}] = settled
	return settled, nil
}

// deliveryFailed ends a lease without success. Undelivered is that of the
// event.
func (m *model) deliveryFailed(r *row, counted, undelivered bool) {
	r.endLease()
	if counted {
		r.Attempts++
	}
	switch {
	case r.Attempts > m.maxAttempts:
		r.Status, r.givenUp = agentrelay.StatusFailed, true
		m.took(r, store.Event{Kind: store.EventFailed, GivenUp: true})
		if r.Type != agentrelay.TypeAck {
			m.send(r, true, "undelivered: ")
		}
	case !r.expires.After(m.clock.Now()):
		m.expire(r, undelivered)
	default:
		m.queue(r, undelivered)
	}
}

func (m *model) renew(n store.Renewal) (time.Time, error) {
	r, err := m.leased(n.Agent, n.ID, n.LeaseID)
	if err != nil {
		return time.Time{}, err
	}
	r.LeaseUntil = m.steady.Add(n.For)
	return r.LeaseUntil, nil
}

func (m *model) release(agent string, list []store.Leased) {
	for _, msg := range list {
		r, err := m.leased(agent, msg.ID, msg.LeaseID)
		if err != nil {
			continue
		}
		undelivered := r.firstHandOver
		if undelivered {
			r.DeliveredAt = time.Time{}
		}
		m.deliveryFailed(r, false, undelivered)
	}
}

// byFirst returns rows in the order they came into being, inbox by inbox.
func (m *model) byFirst() []*row {
	return slices.SortedFunc(maps.Values(m.rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.first, b.first))
	})
}
