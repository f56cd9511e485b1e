package sqlite

import (
	"bytes"
	"database/sql"
	"fmt"
	"math"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// The stages of a message's retention, apart from its status.
const (
	stageRetained = 0
	stageExpiring = 1
	stageErased   = 2
)

const (
	columns = `seq, id, sender, recipient, ts, type, kind, ack, reply_to, root_id, parent_id, status, attempts,
		first_position, position, delivered_at, lease_id, ended_leases, receipt_id, error, expires_at, stage, due_at,
		notice, COALESCE(length(body), 0)`
	// withBody and withoutBody are what row scans.
	withBody    = `SELECT ` + columns + `, body, fingerprint FROM messages `
	withoutBody = `SELECT ` + columns + `, NULL, NULL FROM messages `
)

// noByteLimit lets a query return bodies of any size.
const noByteLimit = math.MaxInt

// row is a stored message.
type row struct {
	agentrelay.Message
	seq           int64
	firstPosition int64
	position      int64
	leaseID       string
	ended         endedLeases
	receiptID     string
	expiresAt     int64
	stage         int
	dueAt         int64
	notice        bool  // see schema
	size          int64 // of the body
	// counted is whether the inbox's counters have it as waiting.
	counted bool
	// fingerprint is nil where the body was not read.
	fingerprint []byte
	// What the transaction found, and its events tell; see store.Event.
	givenUp, cancelled, undelivered bool
}

func (r *row) scan(from interface{ Scan(...any) error }) error {
	var ts int64
	var delivered sql.NullInt64
	var lease, receipt sql.NullString
	var ended string
	var body []byte
	err := from.Scan(&r.seq, &r.ID, &r.From, &r.To, &ts, &r.Type, &r.Kind, &r.Ack, &r.ReplyTo, &r.RootID, &r.ParentID,
		&r.Status, &r.Attempts, &r.firstPosition, &r.position, &delivered, &lease, &ended, &receipt, &r.Error,
		&r.expiresAt, &r.stage, &r.dueAt, &r.notice, &r.size, &body, &r.fingerprint)
	r.TS = time.UnixMilli(ts)
	if delivered.Valid {
		r.DeliveredAt = time.UnixMilli(delivered.Int64)
	}
	r.leaseID, r.receiptID, r.ended, r.Body = lease.String, receipt.String, endedLeases(ended), body
	r.counted = r.waits()
	return err
}

// waits reports whether the message counts toward the quota of its inbox.
func (r *row) waits() bool {
	return r.Status == agentrelay.StatusQueued && r.DeliveredAt.IsZero() && !r.notice
}

// view is the message as others see it at a given time.
func (r *row) view(now instant) agentrelay.Message {
	m := r.Message
	switch {
	case m.Status == agentrelay.StatusQueued && r.expiresAt <= now.wall:
		m.Status = agentrelay.StatusExpired
	case m.Status == agentrelay.StatusLeased:
		until := r.dueAt
		if until < now.opened {
			until = now.opened + millis(store.LeaseGrace)
		}
		m.LeaseUntil = time.UnixMilli(until)
	}
	return m
}

// over reports whether a leased message's lease is over.
func (r *row) over(now instant) bool {
	return r.Status == agentrelay.StatusLeased && r.dueAt <= now.steady && r.dueAt >= now.leaseFloor()
}

// nullable is a time as it is stored, NULL if it is zero.
func nullable(t time.Time) sql.NullInt64 {
	if t.IsZero() {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: true}
}

// intact reports whether a message that was read with its body is what was
// stored. Nothing can be said of one that was erased.
func (r *row) intact() bool {
	if r.Body == nil && r.stage == stageErased {
		return true
	}
	sum := r.Fingerprint()
	return r.Body != nil && bytes.Equal(sum[:], r.fingerprint)
}

// page collects messages until their bodies would exceed a number of bytes;
// it takes at least one. Those that are damaged are set apart, where damaged is
// set.
type page struct {
	rows    []*row
	left    int
	full    bool
	damaged func(*row)
	// passed is how many rows were read, and last the last of them.
	passed int
	last   *row
}

// read adds the rows of a query, until the page is full.
func (p *page) read(stmt *sql.Stmt, args ...any) error {
	rows, err := stmt.Query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r := new(row)
		if err := r.scan(rows); err != nil {
			return fmt.Errorf("%w: a row cannot be read: %w", errDamaged, err)
		}
		p.passed++
		p.last = r
		if p.damaged != nil && !r.intact() {
			p.damaged(r)
			continue
		}
		if p.left -= len(r.Body); p.left < 0 && len(p.rows) > 0 {
			p.full = true
			return nil
		}
		p.rows = append(p.rows, r)
	}
	return rows.Err()
}

// inbox reads one page of an inbox from a position on. Damaged messages are
// passed over, and do not keep what comes after them from being read.
func (s *Store) inbox(stmt *sql.Stmt, agent string, after, wall int64, limit, maxBytes int) ([]*row, error) {
	p := page{left: maxBytes, damaged: s.damagedRow}
	for {
		asked := limit - len(p.rows)
		p.passed = 0
		if err := p.read(stmt, agent, after, wall, asked); err != nil {
			return nil, err
		}
		if p.full || p.passed < asked || len(p.rows) == limit {
			return p.rows, nil
		}
		after = p.last.position
	}
}

// collect reads one page.
func collect(stmt *sql.Stmt, maxBytes int, args ...any) ([]*row, error) {
	p := page{left: maxBytes}
	err := p.read(stmt, args...)
	return p.rows, err
}

// find reads one message by its id; nil if there is none.
func (t *tx) find(id string) (*row, error) {
	list, err := t.rows(withoutBody+`WHERE id = ?`, id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// mustFind reads one message by its id.
func (t *tx) mustFind(id string) (*row, error) {
	r, err := t.find(id)
	if err == nil && r == nil {
		err = failure(agentrelay.CodeNoSuchMessage, "no message has this id, or it was forgotten after its time")
	}
	return r, err
}

// findFor reads a message that must be of agent's inbox.
func (t *tx) findFor(agent, id string) (*row, error) {
	r, err := t.mustFind(id)
	if err == nil && r.To != agent {
		return nil, failure(agentrelay.CodeForbidden, "only the recipient of a message can do this")
	}
	return r, err
}
