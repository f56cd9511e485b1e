package sqlite

import (
	"context"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

const (
	// maxSweep bounds what one sweep does in one commit.
	maxSweep = 256
	// idleSweep is how long a sweep waits at most for the next, so that a
	// jump of the wall clock is noticed.
	idleSweep = 30 * time.Second
)

// What is due, and is not held back: leases that ran out while the store was
// closed, rows to remove after the clock jumped forward.
const (
	notHeldBack = `(status <> 'leased' OR due_at >= ?1) AND (stage <> 2 OR ?2)`
	dueQuery    = withoutBody + `WHERE due_at <= ?3 AND ` + notHeldBack + ` ORDER BY due_at LIMIT ?4`
	nextQuery   = `SELECT due_at FROM messages WHERE ` + notHeldBack + ` ORDER BY due_at LIMIT 1`
	reviveQuery = withoutBody + `WHERE stage = 1 AND expires_at > ? ORDER BY expires_at LIMIT ?`
)

// Sweep does what is due, and returns when to come back.
func (s *Store) Sweep(ctx context.Context) (next time.Duration, err error) {
	now := s.time.now()
	if s.time.jump() == 0 {
		if next, err = s.nextDue(now); err != nil || next > 0 {
			return next, err
		}
	}
	err = s.write(ctx, func(t *tx) error {
		next = 0
		swept, err := t.sweep()
		if err != nil || swept == maxSweep {
			return err
		}
		next = idleSweep
		return nil
	})
	if err != nil || next == 0 {
		return 0, err
	}
	return s.nextDue(s.time.now())
}

// nextDue is how long until something is due, at least a millisecond, or 0 if
// something is.
func (s *Store) nextDue(now instant) (time.Duration, error) {
	var revivable bool
	if _, err := s.one(`SELECT EXISTS (SELECT 1 FROM messages WHERE stage = 1 AND expires_at > ?)`,
		[]any{now.wall}, &revivable); err != nil || revivable {
		return 0, err
	}
	var due int64
	found, err := s.one(nextQuery, []any{now.leaseFloor(), s.forgets()}, &due)
	if err != nil || found && due <= now.reached() {
		return 0, err
	}
	next := idleSweep
	if found {
		next = min(next, time.Duration(due-now.reached())*time.Millisecond)
	}
	if now.leaseFloor() > 0 {
		next = min(next, time.Duration(now.opened+millis(store.LeaseGrace)-now.steady)*time.Millisecond)
	}
	return next, nil
}

// forgets reports whether rows may be removed.
func (s *Store) forgets() bool { return s.time.monotonic() >= s.forgetFrom.Load() }

func (t *tx) sweep() (swept int, err error) {
	rows, err := t.rows(reviveQuery, t.wall, maxSweep)
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := t.revive(r); err != nil {
			return 0, err
		}
	}
	swept = len(rows)
	forgets := t.shift <= 0 && t.writer.store.forgets()
	if rows, err = t.rows(dueQuery, t.leaseFloor(), forgets, t.reached(), maxSweep-swept); err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := t.pass(r); err != nil {
			return 0, err
		}
	}
	return swept + len(rows), nil
}

// pass moves a message on whose time has come.
func (t *tx) pass(r *row) error {
	switch {
	case r.Status == agentrelay.StatusLeased:
		return t.lapse(r)
	case r.stage == stageRetained:
		return t.expire(r)
	case r.stage == stageExpiring:
		return t.exec(`UPDATE messages SET body = NULL, stage = 2, due_at = ? WHERE seq = ?`,
			t.steady+millis(store.TombstoneTTL), r.seq)
	default:
		return t.exec(`DELETE FROM messages WHERE seq = ?`, r.seq)
	}
}

// expire notes that a message's time is over. The sender of one that nobody
// got is told.
func (t *tx) expire(r *row) error {
	open := r.Status == agentrelay.StatusQueued || r.Status == agentrelay.StatusLeased
	if open {
		r.Status, r.leaseID = agentrelay.StatusExpired, ""
		t.report(store.EventExpired, &r.Message).Undelivered = r.undelivered
	}
	r.stage, r.dueAt = stageExpiring, t.steady+millis(store.EraseAfter)
	if err := t.exec(`UPDATE messages SET status = ?, attempts = ?, error = ?, delivered_at = ?, lease_id = NULL,
			ended_leases = ?, stage = 1, due_at = ? WHERE seq = ?`,
		string(r.Status), r.Attempts, r.Error, nullable(r.DeliveredAt), string(r.ended), r.dueAt, r.seq); err != nil {
		return err
	}
	if err := t.recount(r); err != nil {
		return err
	}
	if !open || !r.DeliveredAt.IsZero() || r.Type == agentrelay.TypeAck {
		return nil
	}
	_, err := t.receipt(r, true, "undelivered: expired before the recipient came for it")
	return err
}

// revive takes an expiry back that was seen because the wall clock had jumped
// ahead.
func (t *tx) revive(r *row) error {
	if r.Status != agentrelay.StatusExpired {
		return t.exec(`UPDATE messages SET stage = 0, due_at = expires_at WHERE seq = ?`, r.seq)
	}
	if err := t.exec(`UPDATE messages SET receipt_id = NULL WHERE seq = ?`, r.seq); err != nil {
		return err
	}
	return t.queue(r)
}
