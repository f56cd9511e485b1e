package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// leasableQuery tells whether a pull would find or change anything.
const leasableQuery = `SELECT
	EXISTS (SELECT 1 FROM messages WHERE recipient = ?1 AND status = 'queued' AND position > 0 AND expires_at > ?2)
	OR EXISTS (SELECT 1 FROM messages WHERE recipient = ?1 AND status = 'leased' AND due_at <= ?3 AND due_at >= ?4)`

// overQuery finds the leases of an inbox that are over.
const overQuery = withoutBody + `WHERE recipient = ? AND status = 'leased' AND due_at <= ? AND due_at >= ? ORDER BY due_at`

// Lease takes messages to work on. Where there are none, nothing is written.
func (s *Store) Lease(ctx context.Context, q store.LeaseRequest) (leased []store.Leased, err error) {
	defer s.note(&err)
	now := s.time.now()
	var some bool
	if _, err := s.one(leasableQuery, []any{q.Agent, now.wall, now.steady, now.leaseFloor()}, &some); err != nil || !some {
		return nil, err
	}
	err = s.write(ctx, func(t *tx) error {
		var err error
		leased, err = t.lease(q)
		return err
	})
	return leased, err
}

func (t *tx) lease(q store.LeaseRequest) ([]store.Leased, error) {
	if err := t.endLeases(q.Agent); err != nil {
		return nil, err
	}
	stmt, err := t.writer.stmts.get(pageQuery)
	if err != nil {
		return nil, err
	}
	rows, err := t.writer.store.inbox(stmt, q.Agent, 0, t.wall, q.Limit, q.MaxBytes)
	if err != nil {
		return nil, err
	}
	leased := make([]store.Leased, len(rows))
	until := t.steady + millis(q.For)
	var w waiting
	for i, r := range rows {
		r.Status, r.leaseID, r.dueAt = agentrelay.StatusLeased, t.options.NewID(), until
		first := r.DeliveredAt.IsZero()
		if first {
			r.DeliveredAt = time.UnixMilli(t.wall)
		}
		if err := t.exec(`UPDATE messages SET status = 'leased', lease_id = ?, due_at = ?, delivered_at = ? WHERE seq = ?`,
			r.leaseID, until, r.DeliveredAt.UnixMilli(), r.seq); err != nil {
			return nil, err
		}
		if first {
			t.report(store.EventDelivered, &r.Message).Leased = true
		}
		leased[i] = store.Leased{Message: r.view(t.instant), First: first}
		leased[i].LeaseID = r.leaseID
		w.add(r)
	}
	return leased, t.count(q.Agent, w)
}

// endLeases ends the leases of one inbox that are over.
func (t *tx) endLeases(agent string) error {
	rows, err := t.rows(overQuery, agent, t.steady, t.leaseFloor())
	for _, r := range rows {
		if err == nil {
			err = t.lapse(r)
		}
	}
	return err
}

// lapse ends a lease that ran out. One that ran out while the store was
// closed does not count as an attempt.
func (t *tx) lapse(r *row) error {
	if r.dueAt >= t.opened {
		r.Attempts++
	}
	return t.requeue(r)
}

// requeue decides where a message goes whose delivery failed.
func (t *tx) requeue(r *row) error {
	switch {
	case r.Attempts > t.options.MaxAttempts:
		text := fmt.Sprintf("undelivered: given up after %d attempts", r.Attempts)
		if r.Error != "" {
			text += "; the last one said: " + r.Error
		}
		r.givenUp = true
		if err := t.end(r, agentrelay.StatusFailed, text); err != nil || r.Type == agentrelay.TypeAck {
			return err
		}
		_, err := t.receipt(r, true, text)
		return err
	case r.expiresAt <= t.wall:
		return t.expire(r)
	}
	return t.queue(r)
}

// queue puts a message back at the end of its inbox.
func (t *tx) queue(r *row) error {
	position, err := t.nextPosition(r.To)
	if err != nil {
		return err
	}
	return t.queueAt(r, position)
}

// queueAt puts a message back into its inbox.
func (t *tx) queueAt(r *row, position int64) error {
	t.report(store.EventRequeued, &r.Message).Undelivered = r.undelivered
	r.Status, r.leaseID, r.position, r.stage, r.dueAt = agentrelay.StatusQueued, "", position, stageRetained, r.expiresAt
	if err := t.exec(`UPDATE messages SET status = 'queued', position = ?, attempts = ?, error = ?, delivered_at = ?,
			lease_id = NULL, ended_leases = ?, stage = 0, due_at = expires_at WHERE seq = ?`,
		position, r.Attempts, r.Error, nullable(r.DeliveredAt), string(r.ended), r.seq); err != nil {
		return err
	}
	return t.recount(r)
}

// Settle ends a lease.
func (s *Store) Settle(ctx context.Context, q store.Settlement) (settled store.Settled, err error) {
	var refused error
	err = s.write(ctx, func(t *tx) error {
		var err error
		settled, refused, err = t.settle(q)
		return err
	})
	if err == nil {
		err = refused
	}
	return settled, err
}

// settle returns a refusal apart from err: what it found to be over stays
// ended.
func (t *tx) settle(q store.Settlement) (_ store.Settled, refused, err error) {
	r, refused, err := t.findLeased(q.Agent, q.ID, q.LeaseID)
	if err != nil {
		return store.Settled{}, nil, err
	}
	if refused != nil {
		if settled, found := r.ended.find(q.LeaseID, q.Outcome); found {
			return settled, nil, nil
		}
		return store.Settled{}, refused, nil
	}
	if q.Outcome == agentrelay.OutcomeCompleted {
		err = t.complete(r, q)
	} else {
		err = t.retry(r, q)
	}
	return store.Settled{Status: r.Status, Attempts: r.Attempts}, nil, err
}

func (t *tx) complete(r *row, q store.Settlement) error {
	r.ended = r.ended.add(q.LeaseID, q.Outcome, store.Settled{Status: agentrelay.StatusDone, Attempts: r.Attempts})
	if err := t.end(r, agentrelay.StatusDone, r.Error); err != nil {
		return err
	}
	if !r.Ack || r.Type == agentrelay.TypeAck || r.receiptID != "" {
		return nil
	}
	_, err := t.receipt(r, false, "")
	return err
}

func (t *tx) retry(r *row, q store.Settlement) error {
	if q.Error != "" {
		r.Error = q.Error
	}
	r.Attempts++
	if err := t.requeue(r); err != nil {
		return err
	}
	r.ended = r.ended.add(q.LeaseID, q.Outcome, store.Settled{Status: r.Status, Attempts: r.Attempts})
	return t.exec(`UPDATE messages SET ended_leases = ? WHERE seq = ?`, string(r.ended), r.seq)
}

// Renew prolongs a lease.
func (s *Store) Renew(ctx context.Context, q store.Renewal) (until time.Time, err error) {
	var refused error
	err = s.write(ctx, func(t *tx) error {
		var r *row
		var err error
		if r, refused, err = t.findLeased(q.Agent, q.ID, q.LeaseID); err != nil || refused != nil {
			return err
		}
		end := t.steady + millis(q.For)
		until = time.UnixMilli(end)
		return t.exec(`UPDATE messages SET due_at = ? WHERE seq = ?`, end, r.seq)
	})
	if err == nil {
		err = refused
	}
	return until, err
}

// findLeased reads a message that must be leased under leaseID. A lease that
// is over is ended, and that is kept; then, as for any other lease, refused
// says why.
func (t *tx) findLeased(agent, id, leaseID string) (r *row, refused, err error) {
	if r, err = t.findFor(agent, id); err != nil {
		return nil, nil, err
	}
	if r.over(t.instant) {
		if err := t.lapse(r); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case r.Status != agentrelay.StatusLeased:
		return r, failure(agentrelay.CodeNotLeased, fmt.Sprintf("the message is not leased (any more): it is %s; drop the work", r.Status)), nil
	case r.leaseID != leaseID:
		return r, failure(agentrelay.CodeLeaseMismatch, "the message is leased under another lease id; this lease is over"), nil
	}
	return r, nil, nil
}

// Release gives leases back whose messages never reached the agent.
func (s *Store) Release(ctx context.Context, agent string, leased []store.Leased) error {
	return s.write(ctx, func(t *tx) error {
		for _, m := range leased {
			r, refused, err := t.findLeased(agent, m.ID, m.LeaseID)
			if refused != nil || errors.Is(err, agentrelay.ErrNoSuchMessage) || errors.Is(err, agentrelay.ErrForbidden) {
				continue
			}
			if err != nil {
				return err
			}
			if m.First {
				r.DeliveredAt, r.undelivered = time.Time{}, true
			}
			switch {
			case r.expiresAt <= t.wall:
				err = t.expire(r)
			case m.InPlace:
				err = t.queueAt(r, r.position)
			default:
				err = t.queue(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
