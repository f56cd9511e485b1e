package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/agent-relay/agent-relay/internal/disk"
	"github.com/agent-relay/agent-relay/store"
)

// plainSettings are those of connections that only read, and may write another
// file.
var plainSettings = []setting{{"busy_timeout", "5000", "5000"}, {"trusted_schema", "OFF", "0"}, {"cell_size_check", "ON", "1"}}

// hold takes a data directory that no broker uses. release gives it back.
func holdDir(dir string) (release func(), err error) {
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
	case !locked:
		return nil, fmt.Errorf("data directory %s: %w; stop it first", dir, ErrInUse)
	}
	return func() { _ = lock.Close() }, nil
}

// Check looks at everything stored in a data directory that no broker uses, and
// reports what is damaged. It changes nothing.
func Check(ctx context.Context, dir string, report func(store.Damage)) error {
	release, err := holdDir(dir)
	if err != nil {
		return err
	}
	defer release()
	path := filepath.Join(dir, databaseFile)
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db := sql.OpenDB(newConnector(path, plainSettings))
	defer db.Close()
	w, err := readWitness(filepath.Join(dir, witnessFile))
	if err != nil {
		return err
	}
	var epoch string
	var commits int64
	if err := db.QueryRowContext(ctx, `SELECT epoch, commits FROM store`).Scan(&epoch, &commits); err != nil {
		report(store.Damage{What: "the database cannot be read: " + err.Error()})
		return nil
	}
	if w.commits > commits {
		report(store.Damage{What: fmt.Sprintf("the database has %d commits, and there were %d: what was stored last is missing", commits, w.commits)})
	}
	return inspect(ctx, db, report)
}

// readWitness is what the witness says; nothing if there is none.
func readWitness(path string) (testimony, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return testimony{}, nil
	}
	w, err := openWitness(path)
	if err != nil {
		return testimony{}, err
	}
	return w.seen, w.file.Close()
}

// Backup writes a consistent copy of the store in dir, which a broker may be
// using, to a new file. When it returns without an error, the copy is complete,
// was checked and is on disk.
func Backup(ctx context.Context, dir, to string) error {
	from := filepath.Join(dir, databaseFile)
	if err := checkApplication(ctx, from); err != nil {
		return err
	}
	return writeNew(to, func(temporary string) error {
		db := sql.OpenDB(newConnector(from, plainSettings))
		defer db.Close()
		if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, temporary); err != nil {
			return fmt.Errorf("copy the database: %w", err)
		}
		return verifyCopy(ctx, temporary)
	})
}

// verifyCopy refuses a copy of a database with anything damaged in it.
func verifyCopy(ctx context.Context, path string) error {
	db := sql.OpenDB(newConnector(path, plainSettings))
	defer db.Close()
	var damages []error
	err := inspect(ctx, db, func(d store.Damage) {
		damages = append(damages, fmt.Errorf("%s %s", d.ID, d.What))
	})
	if err == nil && len(damages) > 0 {
		err = fmt.Errorf("the database is damaged: %w; save what is readable with `agent-relay store salvage`", damages[0])
	}
	return err
}

// writeNew has make write a temporary file beside to, makes it durable and puts
// it in its place. There must be no file yet.
func writeNew(to string, make func(temporary string) error) error {
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists; name a new file", to)
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".agent-relay-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, "new")
	if err := make(temporary); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link fails where something came meanwhile; a rename would replace it.
	if err := os.Link(temporary, to); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(to))
}

// checkApplication refuses what is no database of the relay.
func checkApplication(ctx context.Context, path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db := sql.OpenDB(newConnector(path, plainSettings))
	defer db.Close()
	var id int64
	if err := db.QueryRowContext(ctx, `SELECT application_id FROM pragma_application_id`).Scan(&id); err != nil {
		return fmt.Errorf("%s is no database: %w", path, err)
	}
	if id != applicationID {
		return fmt.Errorf("%s is no database of the relay", path)
	}
	return nil
}

// Restore puts a copy, as Backup and Salvage make one, into a data directory
// that no broker uses. The store gets a new epoch, so that cursors of before are
// noticed. What was there is moved aside, and kept is where; empty if there was
// nothing.
func Restore(ctx context.Context, from, dir string, now time.Time) (kept string, err error) {
	if err := checkApplication(ctx, from); err != nil {
		return "", err
	}
	if err := makeDir(dir); err != nil {
		return "", err
	}
	release, err := holdDir(dir)
	if err != nil {
		return "", err
	}
	defer release()
	staged := filepath.Join(dir, "relay.restored")
	if err := os.Remove(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	err = writeNew(staged, func(temporary string) error {
		if err := copyFile(from, temporary); err != nil {
			return err
		}
		return renew(ctx, temporary, now)
	})
	if err != nil {
		return "", err
	}
	if kept, err = moveAside(dir, now); err != nil {
		return kept, err
	}
	if err := os.Rename(staged, filepath.Join(dir, databaseFile)); err != nil {
		return kept, err
	}
	return kept, disk.SyncDir(dir)
}

// renew gives a copy an epoch of its own, after checking it.
func renew(ctx context.Context, path string, now time.Time) error {
	if err := verifyCopy(ctx, path); err != nil {
		return err
	}
	db := sql.OpenDB(newConnector(path, append([]setting{{"journal_mode", "DELETE", "delete"}, {"synchronous", "FULL", "2"}}, plainSettings...)))
	defer db.Close()
	if err := migrate(ctx, db, path); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `UPDATE store SET epoch = ?, created_at = ?, commits = commits + 1`, store.NewID(), now.UnixMilli())
	return err
}

// moveAside keeps the files of a store under another name.
func moveAside(dir string, now time.Time) (kept string, err error) {
	names := []string{databaseFile, databaseFile + "-wal", databaseFile + "-shm", witnessFile}
	aside := filepath.Join(dir, "before-"+now.UTC().Format("20060102T150405.000"))
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if kept == "" {
			if err := os.Mkdir(aside, 0o700); err != nil {
				return "", err
			}
			kept = aside
		}
		if err := os.Rename(path, filepath.Join(aside, name)); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
