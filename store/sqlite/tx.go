package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// tx is the transaction of one batch.
type tx struct {
	instant
	writer  *writer
	options store.Options
	// shift is how far this transaction moves steady time.
	shift int64
	// writes counts what was written.
	writes int
	// changed says that the transaction counts as a commit.
	changed bool
	// events are the steps taken, to be reported once they are committed, and
	// expected how many there will be, about.
	events   []store.Event
	expected int
}

// errUnguarded says that an operation failed after it had written, and that
// the batch is to be run again with a savepoint for each.
var errUnguarded = errors.New("an operation failed after writing")

// runAll runs each operation so that one that fails does not fail the others.
// Savepoints do that and cost a quarter of what a send costs here, so they are
// made only after a batch without them turned out to need one.
func (t *tx) runAll(batch []*operation, guarded bool) (results []error, err error) {
	if t.shift = t.writer.store.time.jump(); t.shift != 0 {
		if err := t.moveTime(); err != nil {
			return nil, err
		}
	}
	run := t.run
	if guarded {
		run = t.runGuarded
	}
	results = make([]error, len(batch))
	for i, op := range batch {
		if results[i], err = run(op); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// run returns the operation's own result, and err if the batch cannot go on.
func (t *tx) run(op *operation) (result, err error) {
	before, events := t.writes, len(t.events)
	result = op.do(t)
	switch {
	case result == nil:
		return nil, nil
	case endsBatch(result):
		return nil, result
	case t.writes != before || len(t.events) != events:
		return nil, errUnguarded
	}
	return translate(result), nil
}

// runGuarded is run, in a savepoint.
func (t *tx) runGuarded(op *operation) (result, err error) {
	if err := t.exec(`SAVEPOINT operation`); err != nil {
		return nil, err
	}
	events := len(t.events)
	result = op.do(t)
	if result != nil {
		if endsBatch(result) {
			return nil, result
		}
		if err := t.exec(`ROLLBACK TO operation`); err != nil {
			return nil, err
		}
		t.events = t.events[:events]
		result = translate(result)
	}
	return result, t.exec(`RELEASE operation`)
}

const (
	moveLeases   = `UPDATE messages SET due_at = due_at + ? WHERE status = 'leased'`
	moveErasures = `UPDATE messages SET due_at = due_at + ? WHERE stage = 1`
)

// moveTime moves steady time to the wall clock, and with it what is measured
// by it.
func (t *tx) moveTime() error {
	t.steady += t.shift
	t.opened += t.shift
	if err := t.exec(moveLeases, t.shift); err != nil {
		return err
	}
	return t.exec(moveErasures, t.shift)
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change is exec, and tells how many rows it changed.
func (t *tx) change(query string, args ...any) (rows int64, err error) {
	t.writes++
	stmt, err := t.writer.stmts.get(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.Exec(args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// one scans the only row of a query; found is false if there is none.
func (t *tx) one(query string, args []any, to ...any) (found bool, err error) {
	stmt, err := t.writer.stmts.get(query)
	if err != nil {
		return false, err
	}
	err = stmt.QueryRow(args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// rows reads a query to its end.
func (t *tx) rows(query string, args ...any) ([]*row, error) {
	stmt, err := t.writer.stmts.get(query)
	if err != nil {
		return nil, err
	}
	return collect(stmt, noByteLimit, args...)
}

// nextPosition advances an inbox's counter.
func (t *tx) nextPosition(agent string) (position int64, err error) {
	_, err = t.one(`INSERT INTO agents (name, position) VALUES (?, 1)
		ON CONFLICT (name) DO UPDATE SET position = position + 1 RETURNING position`, []any{agent}, &position)
	t.writes++
	return position, err
}

// statements keeps prepared statements by their text, of which there are few.
type statements struct {
	prepare func(context.Context, string) (*sql.Stmt, error)
	mu      sync.RWMutex
	byText  map[string]*sql.Stmt
}

func (s *statements) get(query string) (*sql.Stmt, error) {
	s.mu.RLock()
	stmt := s.byText[query]
	s.mu.RUnlock()
	if stmt != nil {
		return stmt, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt := s.byText[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.prepare(context.Background(), query)
	if err != nil {
		return nil, err
	}
	if s.byText == nil {
		s.byText = map[string]*sql.Stmt{}
	}
	s.byText[query] = stmt
	return stmt, nil
}

func (s *statements) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stmt := range s.byText {
		_ = stmt.Close()
	}
	s.byText = nil
}

func failure(code agentrelay.Code, message string) error {
	return &agentrelay.Error{Code: code, Message: message}
}
