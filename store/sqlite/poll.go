package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// pageQuery reads an inbox from a position on: one range of messages_queued.
const pageQuery = withBody + `WHERE recipient = ? AND status = 'queued' AND position > ? AND expires_at > ?
	ORDER BY position LIMIT ?`

// inboxQuery tells an inbox's counter, and whether a lease is over there.
const inboxQuery = `SELECT
	COALESCE((SELECT position FROM agents WHERE name = ?1), 0),
	EXISTS (SELECT 1 FROM messages WHERE recipient = ?1 AND status = 'leased' AND due_at <= ?2 AND due_at >= ?3)`

// firstPositionQuery finds what a message id stands for as a cursor.
const firstPositionQuery = `SELECT first_position FROM messages
	WHERE id = ? AND recipient = ? AND stage = 0 AND expires_at > ?`

// Poll reads a page of an inbox.
func (s *Store) Poll(ctx context.Context, q store.PollQuery) (_ store.Page, err error) {
	defer s.note(&err)
	now := s.time.now()
	var counter int64
	var due bool
	if _, err := s.one(inboxQuery, []any{q.Agent, now.steady, now.leaseFloor()}, &counter, &due); err != nil {
		return store.Page{}, err
	}
	if due {
		if err := s.write(ctx, func(t *tx) error { return t.endLeases(q.Agent) }); err != nil {
			return store.Page{}, err
		}
	}
	after, known, err := s.resolve(q, counter, now)
	if err != nil {
		return store.Page{}, err
	}
	stmt, err := s.read.get(pageQuery)
	if err != nil {
		return store.Page{}, err
	}
	rows, err := s.inbox(stmt, q.Agent, after, now.wall, q.Limit, q.MaxBytes)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{Messages: views(rows, now), Cursor: q.Since, Reset: !known}
	if n := len(rows); n > 0 {
		page.Cursor = agentrelay.Cursor{Tag: agentrelay.CursorTag(s.epoch, q.Agent), Position: rows[n-1].position}.String()
	}
	return page, nil
}

// resolve finds the position that a poll starts after. known is false for a
// cursor that is not of this inbox, or no longer.
func (s *Store) resolve(q store.PollQuery, counter int64, now instant) (after int64, known bool, err error) {
	if q.Since == "" {
		return 0, true, nil
	}
	if c, ok := agentrelay.ParseCursor(q.Since); ok {
		if c.Tag != agentrelay.CursorTag(s.epoch, q.Agent) || c.Position > counter {
			return 0, false, nil
		}
		return c.Position, true, nil
	}
	known, err = s.one(firstPositionQuery, []any{q.Since, q.Agent, now.wall}, &after)
	return after, known, err
}

const deliveredQuery = `UPDATE messages SET delivered_at = ? WHERE id = ? AND delivered_at IS NULL
	RETURNING sender, recipient, ts, type, kind, status = 'queued' AND notice = 0, COALESCE(length(body), 0)`

// Delivered records first hand-overs.
func (s *Store) Delivered(ctx context.Context, ids []string, at time.Time) error {
	return s.write(ctx, func(t *tx) error {
		left := map[string]waiting{}
		for _, id := range ids {
			if err := t.delivered(id, at.UnixMilli(), left); err != nil {
				return err
			}
		}
		for agent, w := range left {
			if err := t.count(agent, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// delivered records one, and notes in left what no longer waits.
func (t *tx) delivered(id string, at int64, left map[string]waiting) error {
	m := agentrelay.Message{ID: id}
	var ts, size int64
	var counted bool
	first, err := t.one(deliveredQuery, []any{at, id}, &m.From, &m.To, &ts, &m.Type, &m.Kind, &counted, &size)
	if err != nil || !first {
		return err
	}
	t.writes++
	m.TS = time.UnixMilli(ts)
	t.report(store.EventDelivered, &m).At = time.UnixMilli(at)
	if counted {
		left[m.To] = waiting{left[m.To].messages - 1, left[m.To].bytes - size}
	}
	return nil
}

// Messages reads messages by id that agent sent or received.
func (s *Store) Messages(_ context.Context, agent string, ids []string) (_ map[string]agentrelay.Message, err error) {
	defer s.note(&err)
	stmt, err := s.read.get(withoutBody + `WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	now := s.time.now()
	found := make(map[string]agentrelay.Message, len(ids))
	for _, id := range ids {
		rows, err := collect(stmt, noByteLimit, id)
		if err != nil {
			return nil, err
		}
		if len(rows) == 1 && (rows[0].From == agent || rows[0].To == agent) {
			found[id] = rows[0].view(now)
		}
	}
	return found, nil
}

// queryChunk is how many messages of an inbox one read goes through, so that
// a filter that finds little does not hold a read transaction for long.
const queryChunk = 2000

// historyQuery reads an inbox back from a position: one range of
// messages_inbox, of which the filter picks.
const historyQuery = withBody + `WHERE recipient = ? AND first_position < ? AND first_position >= ? AND body IS NOT NULL
	AND (?4 = '' OR kind = ?4) AND (?5 = '' OR CASE WHEN status = 'queued' AND expires_at <= ?6 THEN 'expired' ELSE status END = ?5)
	AND (?7 = '' OR sender = ?7)
	ORDER BY first_position DESC LIMIT ?8`

// heldQuery reads what is leased in an inbox. The + keeps it from going through
// all of the inbox for the order's sake.
const heldQuery = withBody + `WHERE recipient = ?1 AND status = 'leased' AND body IS NOT NULL
	AND (?2 = '' OR kind = ?2) AND (?3 = '' OR sender = ?3)
	ORDER BY +first_position DESC LIMIT ?4`

// rangeQuery is where an inbox begins and ends.
const rangeQuery = `SELECT
	(SELECT min(first_position) FROM messages WHERE recipient = ?1),
	(SELECT max(first_position) FROM messages WHERE recipient = ?1)`

// Query reads messages of an inbox, newest first.
func (s *Store) Query(_ context.Context, f store.Filter) (_ []agentrelay.Message, err error) {
	defer s.note(&err)
	if f.To != "" && f.To != f.Agent {
		return nil, nil
	}
	switch now := s.time.now(); {
	case f.ID != "":
		return s.queryOne(f, now)
	case f.Status == agentrelay.StatusLeased:
		stmt, err := s.read.get(heldQuery)
		if err != nil {
			return nil, err
		}
		rows, err := collect(stmt, f.MaxBytes, f.Agent, string(f.Kind), f.From, f.Limit)
		return views(rows, now), err
	default:
		return s.queryHistory(f, now)
	}
}

// queryOne reads one message, if the filter selects it.
func (s *Store) queryOne(f store.Filter, now instant) ([]agentrelay.Message, error) {
	stmt, err := s.read.get(withBody + `WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	rows, err := collect(stmt, noByteLimit, f.ID)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	m := rows[0].view(now)
	if m.To != f.Agent || m.Body == nil || f.From != "" && m.From != f.From || f.Kind != "" && m.Kind != f.Kind || f.Status != "" && m.Status != f.Status {
		return nil, nil
	}
	return []agentrelay.Message{m}, nil
}

// queryHistory goes through an inbox.
func (s *Store) queryHistory(f store.Filter, now instant) ([]agentrelay.Message, error) {
	var lowest, highest sql.NullInt64
	if _, err := s.one(rangeQuery, []any{f.Agent}, &lowest, &highest); err != nil || !lowest.Valid {
		return nil, err
	}
	stmt, err := s.read.get(historyQuery)
	if err != nil {
		return nil, err
	}
	p := page{left: f.MaxBytes, damaged: s.damagedRow}
	for below := highest.Int64 + 1; below > lowest.Int64 && len(p.rows) < f.Limit && !p.full; below -= queryChunk {
		if err := p.read(stmt, f.Agent, below, below-queryChunk,
			string(f.Kind), string(f.Status), now.wall, f.From, f.Limit-len(p.rows)); err != nil {
			return nil, err
		}
	}
	return views(p.rows, now), nil
}

func views(rows []*row, now instant) []agentrelay.Message {
	list := make([]agentrelay.Message, len(rows))
	for i, r := range rows {
		list[i] = r.view(now)
	}
	return list
}

// one scans the only row of a query on the reading connections.
func (s *Store) one(query string, args []any, to ...any) (found bool, err error) {
	stmt, err := s.read.get(query)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRow(args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
