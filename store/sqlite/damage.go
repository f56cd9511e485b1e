package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/internal/filesystem"
	"github.com/agent-relay/agent-relay/store"
)

// maxDamages bounds how many different things are reported.
const maxDamages = 1000

// health is what was found damaged, and the check that looks for it.
type health struct {
	mu      sync.Mutex
	damages map[store.Damage]bool
	cancel  context.CancelFunc
	checked chan struct{} // closed when the check is over
}

func (h *health) found() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.damages) > 0
}

// damaged reports something once.
func (s *Store) damaged(d store.Damage) {
	h := &s.health
	h.mu.Lock()
	known := h.damages[d] || len(h.damages) >= maxDamages
	if !known {
		if h.damages == nil {
			h.damages = map[store.Damage]bool{}
		}
		h.damages[d] = true
	}
	h.mu.Unlock()
	if !known {
		s.options.Damaged(d)
	}
}

func (s *Store) damagedRow(r *row) {
	s.damaged(store.Damage{ID: r.ID, What: "the message is not as it was stored; it is not delivered"})
}

// note reports an error that shows damage.
func (s *Store) note(err *error) {
	if *err != nil && isDamage(*err) {
		s.damaged(store.Damage{What: (*err).Error()})
	}
}

// refuseNetwork refuses a data directory whose locks and writes are another
// machine's.
func refuseNetwork(dir string) error {
	network, _, err := filesystem.Network(dir)
	if err != nil {
		return fmt.Errorf("find out what the data directory %s lies on: %w", dir, err)
	}
	if network != "" {
		return fmt.Errorf("data directory %s is on %s: locks and writes there are not safe for a database; set data_dir to a directory on a local disk", dir, network)
	}
	return nil
}

// beginCheck looks for damage in the background, if the store was not closed
// well: what a crash leaves is in order, but what caused the crash may not be.
func (s *Store) beginCheck(clean bool) {
	h := &s.health
	h.checked = make(chan struct{})
	if clean {
		close(h.checked)
		return
	}
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(h.checked)
		db := sql.OpenDB(newConnector(s.path, readSettings))
		defer db.Close()
		if err := inspect(ctx, db, s.damaged); err != nil && ctx.Err() == nil {
			s.damaged(store.Damage{What: "the check of the database ended early: " + err.Error()})
		}
	}()
}

// endCheck ends the check, and waits for it.
func (s *Store) endCheck() {
	if s.health.cancel != nil {
		s.health.cancel()
		<-s.health.checked
	}
}

// inspectChunk is how many messages are read at a time, so that no read
// transaction lasts long.
const inspectChunk = 500

// inspectQuery also finds rows whose times contradict each other.
const inspectQuery = `SELECT ` + columns + `, body, fingerprint FROM messages WHERE seq > ? ORDER BY seq LIMIT ?`

// countersQuery finds inboxes whose counters are not those of their messages.
const countersQuery = `SELECT name FROM agents WHERE
	position < COALESCE((SELECT max(first_position) FROM messages WHERE recipient = name), 0)
	OR (waiting, waiting_bytes) <> (SELECT count(*), COALESCE(sum(length(body)), 0) FROM messages
		WHERE recipient = name AND status = 'queued' AND delivered_at IS NULL AND notice = 0)`

// inspect looks at everything stored and reports what is damaged.
func inspect(ctx context.Context, db *sql.DB, report func(store.Damage)) error {
	for _, check := range []func(context.Context, *sql.DB, func(store.Damage)) error{
		inspectPages, inspectMessages, inspectCounters,
	} {
		if err := check(ctx, db, report); err != nil {
			if !isDamage(err) {
				return err
			}
			report(store.Damage{What: err.Error()})
		}
	}
	return nil
}

func inspectPages(ctx context.Context, db *sql.DB, report func(store.Damage)) error {
	found, err := texts(ctx, db, `PRAGMA integrity_check(100)`)
	for _, text := range found {
		if text != "ok" {
			report(store.Damage{What: text})
		}
	}
	return err
}

func inspectMessages(ctx context.Context, db *sql.DB, report func(store.Damage)) error {
	stmt, err := db.PrepareContext(ctx, inspectQuery)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for after := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := collect(stmt, noByteLimit, after, inspectChunk)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if what := r.fault(); what != "" {
				report(store.Damage{ID: r.ID, What: what})
			}
			after = r.seq
		}
		if len(rows) < inspectChunk {
			return nil
		}
	}
}

var statuses = []agentrelay.Status{
	agentrelay.StatusQueued, agentrelay.StatusLeased, agentrelay.StatusDone, agentrelay.StatusFailed, agentrelay.StatusExpired,
}

// fault says what contradicts itself in a message, or nothing.
func (r *row) fault() string {
	switch {
	case !r.intact():
		return "the message is not as it was stored; it is not delivered"
	case !slices.Contains(statuses, r.Status):
		return "the message is in no state that there is"
	case r.stage == stageRetained && r.leaseID == "" && r.dueAt != r.expiresAt:
		return "the message's times contradict each other"
	case r.expiresAt <= r.TS.UnixMilli():
		return "the message expired before it came"
	}
	return ""
}

func inspectCounters(ctx context.Context, db *sql.DB, report func(store.Damage)) error {
	names, err := texts(ctx, db, countersQuery)
	for _, name := range names {
		report(store.Damage{What: fmt.Sprintf("the counters of the inbox of %q are not those of its messages", name)})
	}
	return err
}

// texts reads a query of one column.
func texts(ctx context.Context, db *sql.DB, query string) ([]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return list, fmt.Errorf("%w: %w", errDamaged, err)
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
