// Package sqlite is the store that comes with the relay: one SQLite file, no
// cgo.
//
// Every write is durable before it is answered: write-ahead log with
// synchronous=FULL (https://www.sqlite.org/pragma.html#pragma_synchronous).
// Writes that arrive while a commit is under way share the next one. Reads
// have connections of their own and do not wait for writes.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	sqlite "modernc.org/sqlite"

	"github.com/agent-relay/agent-relay/internal/disk"
	"github.com/agent-relay/agent-relay/store"
)

// Names of the files in the data directory. SQLite adds relay.db-wal and
// relay.db-shm.
const (
	databaseFile = "relay.db"
	lockFile     = "relay.lock"
	witnessFile  = "relay.witness"
)

// Options say where the store is.
type Options struct {
	// Dir is the data directory. It is made, readable by its owner alone, if
	// it does not exist.
	Dir string
	store.Options
}

// Store is a store.Store in one SQLite file.
type Store struct {
	options store.Options
	path    string // of the database
	epoch   string
	lock    *flock.Flock
	reader  *sql.DB
	writer  *writer
	witness *witness
	health  health
	// recovered is what Recovered tells.
	recovered bool
	time      *steadyClock

	// forgetFrom is the monotonic time before which no row is removed, since
	// the wall clock jumped forward.
	forgetFrom atomic.Int64
	read       statements
}

var _ store.Store = (*Store)(nil)

// ErrInUse is returned by Open when another process has the data directory.
var ErrInUse = errors.New("another broker is using this data directory")

// Open opens the store in o.Dir, making it if there is none. What it checks
// does not grow with what is stored. The caller closes the store.
func Open(ctx context.Context, o Options) (*Store, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if err := refuseNetwork(dir); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
	}
	if !locked {
		return nil, fmt.Errorf("data directory %s: %w; stop it, or set another data_dir", dir, ErrInUse)
	}
	s := &Store{options: o.Options.WithDefaults(), lock: lock, path: filepath.Join(dir, databaseFile)}
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	path := s.path
	var err error
	if s.witness, err = openWitness(filepath.Join(filepath.Dir(path), witnessFile)); err != nil {
		return err
	}
	if err := s.witness.refuseNew(path); err != nil {
		return err
	}
	// SQLite would make the file with the umask's mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	// A commit need not wait for the file's timestamps. Where the system has
	// no fdatasync, SQLite goes on with what it has.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return fmt.Errorf("open the database %s: %w", path, err)
	}
	db := sql.OpenDB(newConnector(path, writeSettings))
	s.time = newSteadyClock(s.options.Clock)
	if err := migrate(ctx, db, path); err != nil {
		return errors.Join(err, db.Close())
	}
	var commits int64
	if s.epoch, commits, err = establish(ctx, db, s.time.wall()); err != nil {
		return errors.Join(fmt.Errorf("open the database %s: %w", path, err), db.Close())
	}
	clean, err := s.witness.confirm(s.epoch, commits, path)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("open the database %s: %w", path, err), db.Close())
	}
	s.writer = newWriter(s, db, conn, commits)
	s.reader = sql.OpenDB(newConnector(path, readSettings))
	s.reader.SetMaxOpenConns(readConnections)
	s.reader.SetMaxIdleConns(readConnections)
	s.read = statements{prepare: s.reader.PrepareContext}
	s.recovered = !clean && commits > 0
	s.beginCheck(clean)
	return nil
}

// Epoch is the random name of this database.
func (s *Store) Epoch() string { return s.epoch }

// Recovered reports whether the store had not been closed well before it was
// opened. Nothing that was acknowledged is lost by that.
func (s *Store) Recovered() bool { return s.recovered }

// Failed is closed when a commit failed for a reason other than a full disk.
func (s *Store) Failed() <-chan struct{} { return s.writer.failed }

// Err is why the store failed; nil while it works.
func (s *Store) Err() error {
	select {
	case <-s.writer.failed:
		return s.writer.failure
	default:
		return nil
	}
}

// Probe makes a durable write.
func (s *Store) Probe(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		return t.exec(`UPDATE store SET probed_at = ?`, t.wall)
	})
}

// Close commits what was begun and releases the database and the directory.
func (s *Store) Close() error {
	var errs []error
	s.endCheck()
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.reader != nil {
		s.read.close()
		errs = append(errs, s.reader.Close())
	}
	if s.witness != nil {
		errs = append(errs, s.witness.close(s))
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// establish returns the database's epoch, making it in a new database, and how
// many commits it has.
func establish(ctx context.Context, db *sql.DB, now int64) (epoch string, commits int64, err error) {
	if _, err := db.ExecContext(ctx,
		`INSERT INTO store (id, epoch, created_at) VALUES (1, ?, ?) ON CONFLICT DO NOTHING`, store.NewID(), now); err != nil {
		return "", 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT epoch, commits FROM store`).Scan(&epoch, &commits)
	return epoch, commits, err
}

// makeDir makes a directory, and those above it, readable by the owner alone.
// What it made outlasts a crash of the machine. (SQLite sees to that for the
// files within: it syncs the directory with the first commit.)
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return disk.SyncDir(parent)
}

// millis is a duration in the unit of the schema.
func millis(d time.Duration) int64 { return d.Milliseconds() }
