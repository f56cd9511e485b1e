package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Salvaged is what Salvage could save, and what not.
type Salvaged struct {
	Agents, Messages int
	// Damaged counts messages that are there and cannot be trusted; Unreadable
	// places where a message may have been.
	Damaged, Unreadable int
	// MissingCommits is how many commits are not in the database.
	MissingCommits int64
}

// Complete reports whether nothing is missing.
func (s Salvaged) Complete() bool { return s.Damaged+s.Unreadable == 0 && s.MissingCommits == 0 }

const (
	registryColumns = `name, registered_at, last_seen, position, description, allowed_targets, max_queued, keyed`
	secretColumns   = `agent, id, secret, created_at, not_after, last_used`
	copiedColumns   = `seq, id, sender, recipient, ts, type, kind, ack, reply_to, root_id, parent_id, body, fingerprint,
		status, attempts, first_position, position, delivered_at, lease_id, ended_leases, receipt_id, error,
		expires_at, stage, due_at, notice`
	countAgain = `UPDATE agents SET
		position = max(position, COALESCE((SELECT max(max(first_position, position)) FROM messages WHERE recipient = name), 0)),
		(waiting, waiting_bytes) = (SELECT count(*), COALESCE(sum(length(body)), 0) FROM messages
			WHERE recipient = name AND status = 'queued' AND delivered_at IS NULL AND notice = 0)`
)

// Salvage writes what is readable in dir, which no broker uses, to a new file
// with an epoch of its own, for Restore. It changes nothing in dir.
func Salvage(ctx context.Context, dir, to string) (saved Salvaged, err error) {
	release, err := holdDir(dir)
	if err != nil {
		return Salvaged{}, err
	}
	defer release()
	if err := checkApplication(ctx, filepath.Join(dir, databaseFile)); err != nil {
		return Salvaged{}, err
	}
	err = writeNew(to, func(temporary string) error {
		var err error
		saved, err = salvageInto(ctx, dir, temporary)
		return err
	})
	return saved, err
}

func salvageInto(ctx context.Context, dir, temporary string) (Salvaged, error) {
	// The store makes its files in a directory of its own.
	work := temporary + ".d"
	fresh, err := Open(ctx, Options{Dir: work})
	if err != nil {
		return Salvaged{}, err
	}
	if err := fresh.Close(); err != nil {
		return Salvaged{}, err
	}
	made := filepath.Join(work, databaseFile)
	source := sql.OpenDB(newConnector(filepath.Join(dir, databaseFile), plainSettings))
	defer source.Close()
	target := sql.OpenDB(newConnector(made, append([]setting{{"journal_mode", "DELETE", "delete"}}, plainSettings...)))
	defer target.Close()
	s := &salvage{ctx: ctx, source: source}
	if s.into, err = target.BeginTx(ctx, nil); err != nil {
		return Salvaged{}, err
	}
	defer func() { _ = s.into.Rollback() }()
	if err := errors.Join(s.agents(), s.messages()); err != nil {
		return Salvaged{}, err
	}
	if _, err := s.into.ExecContext(ctx, countAgain); err != nil {
		return Salvaged{}, err
	}
	if err := s.into.Commit(); err != nil {
		return Salvaged{}, err
	}
	s.compareWitness(dir)
	return s.Salvaged, errors.Join(target.Close(), os.Rename(made, temporary))
}

// salvage copies what it can read.
type salvage struct {
	Salvaged
	ctx    context.Context
	source *sql.DB
	into   *sql.Tx
}

// agents copies the registry and its keys, as far as they can be read.
func (s *salvage) agents() error {
	n, err := s.rows("agents", registryColumns)
	s.Agents = n
	if err == nil {
		_, err = s.rows("agent_keys", secretColumns)
	}
	return err
}

// rows copies a small table, up to where it cannot be read.
func (s *salvage) rows(table, columns string) (copied int, err error) {
	rows, err := s.source.QueryContext(s.ctx, `SELECT `+columns+` FROM `+table)
	if err != nil {
		s.Unreadable++
		return 0, s.ctx.Err()
	}
	defer rows.Close()
	values, to := anyValues(strings.Count(columns, ",") + 1)
	insert := `INSERT INTO ` + table + ` (` + columns + `) VALUES (?` + strings.Repeat(", ?", len(values)-1) + `) ON CONFLICT DO NOTHING`
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			s.Unreadable++
			continue
		}
		if _, err := s.into.ExecContext(s.ctx, insert, values...); err != nil {
			s.Unreadable++ // what a damaged page has may break a rule of the table
			continue
		}
		copied++
	}
	if rows.Err() != nil {
		s.Unreadable++
	}
	return copied, s.ctx.Err()
}

// anyValues are values of a row, and pointers to them.
func anyValues(n int) (values, to []any) {
	values, to = make([]any, n), make([]any, n)
	for i := range values {
		to[i] = &values[i]
	}
	return values, to
}

// messages copies each message by its number, so that a page that cannot be
// read costs those on it alone.
func (s *salvage) messages() error {
	var last int64
	if err := s.source.QueryRowContext(s.ctx, `SELECT COALESCE(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'`).Scan(&last); err != nil || last == 0 {
		if err := s.source.QueryRowContext(s.ctx, `SELECT COALESCE(max(seq), 0) FROM messages`).Scan(&last); err != nil {
			s.Unreadable++
		}
	}
	check, err := s.source.PrepareContext(s.ctx, inspectOne)
	if err != nil {
		s.Unreadable++
		return s.ctx.Err()
	}
	defer check.Close()
	copied, err := s.source.PrepareContext(s.ctx, `SELECT `+copiedColumns+` FROM messages WHERE seq = ?`)
	if err != nil {
		s.Unreadable++
		return s.ctx.Err()
	}
	defer copied.Close()
	for seq := int64(1); seq <= last; seq++ {
		if err := s.message(check, copied, seq); err != nil {
			return err
		}
	}
	return nil
}

// inspectOne reads one message to judge it.
const inspectOne = `SELECT ` + columns + `, body, fingerprint FROM messages WHERE seq = ?`

func (s *salvage) message(check, copied *sql.Stmt, seq int64) error {
	list, err := collect(check, noByteLimit, seq)
	switch {
	case err != nil:
		s.Unreadable++
		return s.ctx.Err()
	case len(list) == 0:
		return nil // it was removed in its time
	case list[0].fault() != "":
		s.Damaged++
		return nil
	}
	values, to := anyValues(strings.Count(copiedColumns, ",") + 1)
	if err := copied.QueryRowContext(s.ctx, seq).Scan(to...); err != nil {
		s.Unreadable++
		return s.ctx.Err()
	}
	_, err = s.into.ExecContext(s.ctx, `INSERT INTO agents (name) VALUES (?) ON CONFLICT DO NOTHING`, list[0].To)
	if err == nil {
		_, err = s.into.ExecContext(s.ctx, `INSERT INTO messages (`+copiedColumns+`) VALUES (?`+strings.Repeat(", ?", len(values)-1)+`)`, values...)
	}
	if err != nil {
		return fmt.Errorf("save message %s: %w", list[0].ID, err)
	}
	s.Messages++
	return nil
}

// compareWitness counts the commits that the database lacks.
func (s *salvage) compareWitness(dir string) {
	seen, err := readWitness(filepath.Join(dir, witnessFile))
	var commits int64
	if err == nil && s.source.QueryRowContext(s.ctx, `SELECT commits FROM store`).Scan(&commits) == nil {
		s.MissingCommits = max(0, seen.commits-commits)
	}
}
