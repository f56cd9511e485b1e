package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Enqueue stores a message.
func (s *Store) Enqueue(ctx context.Context, m agentrelay.Message) (result store.Enqueued, err error) {
	sum := m.Fingerprint()
	err = s.send(ctx, func(t *tx) error {
		var err error
		result, err = t.enqueue(m, sum[:])
		return err
	})
	return result, err
}

// enqueue finds out that an id is known by the insert that does nothing: most
// are not.
func (t *tx) enqueue(m agentrelay.Message, fingerprint []byte) (store.Enqueued, error) {
	writes := t.writes
	position, refused, err := t.admit(m)
	if err != nil {
		return store.Enqueued{}, err
	}
	if refused == nil {
		inserted, err := t.insert(m, fingerprint, position, false)
		if err != nil || inserted {
			return store.Enqueued{TS: time.UnixMilli(t.wall)}, err
		}
		if err := t.dismiss(m); err != nil {
			return store.Enqueued{}, err
		}
	}
	t.writes = writes // nothing is left of it
	known, err := judge(t.one, m, fingerprint)
	if err == nil && !known.Duplicate {
		err = refused
	}
	return known, err
}

// Known looks for a message without storing it.
func (s *Store) Known(_ context.Context, m agentrelay.Message) (store.Enqueued, error) {
	sum := m.Fingerprint()
	known, err := judge(s.one, m, sum[:])
	if err != nil || known.Duplicate {
		return known, translate(err)
	}
	var waiting, size int64
	var most sql.NullInt64
	found, err := s.one(`SELECT waiting, waiting_bytes, max_queued FROM agents WHERE name = ? AND registered_at IS NOT NULL`,
		[]any{m.To}, &waiting, &size, &most)
	switch {
	case err != nil:
	case !found:
		err = noSuchAgent(m.To)
	default:
		err = checkQuota(s.options, m.To, most, waiting+1, size+int64(len(m.Body)))
	}
	return store.Enqueued{}, translate(err)
}

// judge holds a message against the stored one of its id, if there is one; one
// finds it.
func judge(one func(string, []any, ...any) (bool, error), m agentrelay.Message, fingerprint []byte) (store.Enqueued, error) {
	var ts int64
	var known []byte
	found, err := one(`SELECT ts, fingerprint FROM messages WHERE id = ?`, []any{m.ID}, &ts, &known)
	switch {
	case err != nil || !found:
		return store.Enqueued{}, err
	case !bytes.Equal(known, fingerprint):
		return store.Enqueued{}, failure(agentrelay.CodeIDConflict,
			"this id was used before for a different message; send this one under an id of its own")
	}
	return store.Enqueued{Duplicate: true, TS: time.UnixMilli(ts)}, nil
}

func noSuchAgent(name string) error {
	return failure(agentrelay.CodeNoSuchAgent, `no agent "`+name+`" ever registered`)
}

// insert stores a message, queued, unless its id is known.
func (t *tx) insert(m agentrelay.Message, fingerprint []byte, position int64, notice bool) (inserted bool, err error) {
	expires := t.wall + millis(t.options.TTL)
	n, err := t.change(`INSERT INTO messages (id, sender, recipient, ts, type, kind, ack, reply_to, root_id, parent_id,
			body, fingerprint, status, first_position, position, expires_at, due_at, notice)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		m.ID, m.From, m.To, t.wall, string(m.Type), string(m.Kind), m.Ack, m.ReplyTo, m.RootID, m.ParentID,
		[]byte(m.Body), fingerprint, position, position, expires, expires, notice)
	if n > 0 {
		m.TS = time.UnixMilli(t.wall)
		t.report(store.EventAccepted, &m)
	}
	return n > 0, err
}

// receipt puts the one receipt of a message into its sender's inbox and
// returns its id. An error receipt carries text.
func (t *tx) receipt(r *row, failed bool, text string) (id string, err error) {
	body := []byte(`{"status":"ok"}`)
	if failed {
		body = append(agentrelay.AppendString([]byte(`{"status":"error","error":`), text), '}')
	}
	return t.receiptWith(r, body)
}

// receiptWith is receipt with a body.
func (t *tx) receiptWith(r *row, body []byte) (id string, err error) {
	m := agentrelay.Message{
		ID: t.options.NewID(), From: r.To, To: r.From, Type: agentrelay.TypeAck,
		Kind: agentrelay.KindMessage, Body: body, ReplyTo: r.ID,
	}
	position, err := t.nextPosition(m.To)
	if err != nil {
		return "", err
	}
	sum := m.Fingerprint()
	switch inserted, err := t.insert(m, sum[:], position, true); {
	case err != nil:
		return "", err
	case !inserted:
		return "", fmt.Errorf("the new id %s of a receipt is in use", m.ID)
	}
	r.receiptID = m.ID
	return m.ID, t.exec(`UPDATE messages SET receipt_id = ? WHERE seq = ?`, m.ID, r.seq)
}

// Acknowledge ends a message and sends its receipt.
func (s *Store) Acknowledge(ctx context.Context, a store.Acknowledgement) (id string, err error) {
	err = s.write(ctx, func(t *tx) error {
		var err error
		id, err = t.acknowledge(a)
		return err
	})
	return id, err
}

func (t *tx) acknowledge(a store.Acknowledgement) (receiptID string, err error) {
	r, err := t.findFor(a.Agent, a.ID)
	if err != nil {
		return "", err
	}
	if r.Type == agentrelay.TypeAck {
		return "", failure(agentrelay.CodeBadRequest, "this is a receipt; receipts are not acknowledged")
	}
	if r.receiptID != "" {
		return r.receiptID, nil
	}
	switch r.Status {
	case agentrelay.StatusDone:
		return t.receipt(r, false, "")
	case agentrelay.StatusFailed:
		return t.receipt(r, true, r.Error)
	}
	status, text := agentrelay.StatusDone, r.Error
	if a.Failed {
		status, text = agentrelay.StatusFailed, a.Error
	}
	if err := t.end(r, status, text); err != nil {
		return "", err
	}
	if a.Body != nil {
		return t.receiptWith(r, a.Body)
	}
	return t.receipt(r, a.Failed, a.Error)
}

// end makes a message done or failed; it is never delivered again.
func (t *tx) end(r *row, status agentrelay.Status, text string) error {
	due := r.dueAt
	if r.stage == stageRetained {
		due = r.expiresAt
	}
	r.Status, r.Error, r.leaseID, r.dueAt = status, text, "", due
	kind := store.EventDone
	if status == agentrelay.StatusFailed {
		kind = store.EventFailed
	}
	e := t.report(kind, &r.Message)
	e.GivenUp, e.Cancelled = r.givenUp, r.cancelled
	if err := t.exec(`UPDATE messages SET status = ?, error = ?, attempts = ?, lease_id = NULL, ended_leases = ?, due_at = ? WHERE seq = ?`,
		string(status), text, r.Attempts, string(r.ended), due, r.seq); err != nil {
		return err
	}
	return t.recount(r)
}
