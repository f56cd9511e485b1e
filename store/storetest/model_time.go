package storetest

import (
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// open is what happens when the store is opened: steady time begins anew.
func (m *model) open() {
	m.steady, m.elapsed, m.forgetFrom = m.clock.Now(), m.clock.Elapsed(), 0
	m.opened = m.steady
	m.begin()
}

// tick moves steady time on, and to the wall if that jumped.
func (m *model) tick() {
	elapsed := m.clock.Elapsed()
	m.steady = m.steady.Add(elapsed - m.elapsed)
	m.elapsed = elapsed
	jump := m.clock.Now().Sub(m.steady)
	if jump.Abs() <= store.ClockTolerance {
		return
	}
	if jump > 0 {
		m.forgetFrom = elapsed + store.EraseAfter
	}
	m.steady, m.opened = m.steady.Add(jump), m.opened.Add(jump)
	for _, r := range m.rows {
		if r.Status == agentrelay.StatusLeased {
			r.LeaseUntil = r.LeaseUntil.Add(jump)
		}
		if r.stage == seen {
			r.due = r.due.Add(jump)
		}
	}
}

// sweep does all that is due.
func (m *model) sweep() {
	m.tick()
	for again := true; again; {
		again = false
		for _, r := range m.byFirst() {
			again = m.sweepOne(r) || again
		}
	}
}

func (m *model) sweepOne(r *row) (changed bool) {
	expired := !r.expires.After(m.clock.Now())
	switch {
	case r.Status == agentrelay.StatusLeased:
		end, counted := m.leaseEnd(r)
		if end.After(m.steady) {
			return false
		}
		m.deliveryFailed(r, counted, false)
	case r.stage == retained && expired:
		m.expire(r, false)
	case r.stage == seen && !expired:
		m.revive(r)
	case r.stage == seen && !r.due.After(m.steady):
		r.stage, r.Body, r.due = erased, nil, m.clock.Now().Add(store.TombstoneTTL)
	case r.stage == erased && !r.due.After(m.clock.Now()) && m.clock.Elapsed() >= m.forgetFrom:
		delete(m.rows, r.ID)
	default:
		return false
	}
	return true
}

// leaseEnd is when a lease is over. What ran out before the store was opened
// has some time more, and does not count as an attempt.
func (m *model) leaseEnd(r *row) (end time.Time, counted bool) {
	if r.LeaseUntil.Before(m.opened) {
		return m.opened.Add(store.LeaseGrace), false
	}
	return r.LeaseUntil, true
}

// expire takes note that a message's time has passed. Undelivered is that of
// the event.
func (m *model) expire(r *row, undelivered bool) {
	r.stage, r.due = seen, m.steady.Add(store.EraseAfter)
	if r.Status == agentrelay.StatusDone || r.Status == agentrelay.StatusFailed {
		return
	}
	r.Status = agentrelay.StatusExpired
	m.took(r, store.Event{Kind: store.EventExpired, Undelivered: undelivered})
	if r.DeliveredAt.IsZero() && r.Type != agentrelay.TypeAck {
		m.send(r, true, "undelivered: ")
	}
}

// revive takes it back, since the wall was set back.
func (m *model) revive(r *row) {
	r.stage = retained
	if r.Status == agentrelay.StatusExpired {
		r.receipt = ""
		m.queue(r, false)
	}
}

// nextDue is how long until there is something to sweep.
func (m *model) nextDue() (next time.Duration, ok bool) {
	for _, r := range m.rows {
		var d time.Duration
		switch {
		case r.Status == agentrelay.StatusLeased:
			end, _ := m.leaseEnd(r)
			d = end.Sub(m.steady)
		case r.stage == retained:
			d = r.expires.Sub(m.clock.Now())
		case r.stage == seen:
			d = r.due.Sub(m.steady)
		default:
			d = max(r.due.Sub(m.clock.Now()), m.forgetFrom-m.elapsed)
		}
		if !ok || d < next {
			next, ok = d, true
		}
	}
	return next, ok
}
