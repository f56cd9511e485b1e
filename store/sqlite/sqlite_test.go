package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if sharedDir != "" {
			_ = os.RemoveAll(sharedDir)
		}
		os.Exit(code)
	}))
}

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func messageTo(to, id string, size int) agentrelay.Message {
	return agentrelay.Message{
		ID: id, From: "alpha", To: to, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage,
		Body: []byte(`"` + strings.Repeat("x", size) + `"`),
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"a directory in use": {
			func(t *testing.T, dir string) { openIn(t, dir) },
			"another broker is using this data directory; stop it, or set another data_dir",
		},
		"a file that is no database": {
			func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, databaseFile), []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			"relay.db",
		},
		"a database of another program": {
			func(t *testing.T, dir string) { change(t, dir, `CREATE TABLE books (title TEXT)`) },
			"is a database of another program; set another data_dir",
		},
		"a newer schema": {
			func(t *testing.T, dir string) {
				s, err := Open(t.Context(), Options{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				change(t, dir, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
			},
			"newer than the 3 this program knows; use a newer agent-relay",
		},
		"a file where the directory should be": {
			func(t *testing.T, dir string) {
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(dir, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			"data directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, dir)
			s, err := Open(t.Context(), Options{Dir: dir})
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %q, want it to say %q", err, c.want)
			}
		})
	}
}

// change runs SQL on a database that nobody has open.
func change(t *testing.T, dir, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInUseIsNamed(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir)
	if _, err := Open(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := filepath.Join(t.TempDir(), "made", "by", "open")
	s := openIn(t, dir)
	if err := s.Register(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || files < 3 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestSettingsAreReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), databaseFile)
	c := newConnector(path, []setting{{"synchronous", "OFF", "2"}})
	if _, err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "synchronous") {
		t.Errorf("a setting that did not take is answered with %v", err)
	}
}

func TestPathNeedsNoCare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "50% of #1? yes & no;ü")
	s := openIn(t, dir)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, databaseFile)); err != nil {
		t.Error(err)
	}
}

// TestFull fills the database to a page limit, which SQLite reports as it
// does a full disk.
func TestFull(t *testing.T) {
	ctx := t.Context()
	s := openIn(t, t.TempDir())
	if err := s.Register(ctx, "beta"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, messageTo("beta", "first", 10)); err != nil {
		t.Fatal(err)
	}
	limitPages(t, s, 100)
	stored := 1
	for i := 0; ; i++ {
		_, err := s.Enqueue(ctx, messageTo("beta", fmt.Sprint("m", i), 20_000))
		if err == nil {
			stored++
			continue
		}
		if !errors.Is(err, agentrelay.ErrStorageFull) {
			t.Fatalf("a full store answers %v", err)
		}
		break
	}
	page, err := s.Poll(ctx, store.PollQuery{Agent: "beta", Limit: 200, MaxBytes: agentrelay.MaxPageBytes})
	if err != nil || len(page.Messages) != stored {
		t.Errorf("%d of %d stored messages are there, %v", len(page.Messages), stored, err)
	}
	if err := s.Delivered(ctx, []string{"first"}, s.time.clock.Now()); err != nil {
		t.Errorf("what does not grow fails too: %v", err)
	}
	limitPages(t, s, 1<<30)
	if _, err := s.Enqueue(ctx, messageTo("beta", "after", 20_000)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestFullBatch puts a send that does not fit and something that needs no
// room into one commit.
func TestFullBatch(t *testing.T) {
	ctx := t.Context()
	s := openIn(t, t.TempDir())
	if err := s.Register(ctx, "beta"); err != nil {
		t.Fatal(err)
	}
	limitPages(t, s, 60)
	enter, results := hold(s)
	big, small := make(chan error), make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, messageTo("beta", "big", 900_000))
		big <- err
	}()
	go func() { small <- s.Probe(ctx) }()
	waitQueued(s, 2)
	close(enter)
	if err := <-results; err != nil {
		t.Fatal(err)
	}
	if err := <-big; !errors.Is(err, agentrelay.ErrStorageFull) {
		t.Errorf("the send answers %v", err)
	}
	if err := <-small; err != nil {
		t.Errorf("the other operation answers %v", err)
	}
}

func TestOneOperationDoesNotFailTheOthers(t *testing.T) {
	ctx := t.Context()
	s := openIn(t, t.TempDir())
	if err := s.Register(ctx, "beta"); err != nil {
		t.Fatal(err)
	}
	enter, held := hold(s)
	good, bad := make(chan error), make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, messageTo("beta", "good", 10))
		good <- err
	}()
	go func() {
		bad <- s.send(ctx, func(t *tx) error {
			m := messageTo("beta", "half", 10)
			sum := m.Fingerprint()
			if _, err := t.insert(m, sum[:], 77, false); err != nil {
				return err
			}
			return errors.New("after writing")
		})
	}()
	waitQueued(s, 2)
	close(enter)
	if err := errors.Join(<-held, <-good); err != nil {
		t.Error(err)
	}
	if err := <-bad; err == nil || err.Error() != "after writing" {
		t.Errorf("the failing operation answers %v", err)
	}
	page, err := s.Poll(ctx, store.PollQuery{Agent: "beta", Limit: 10, MaxBytes: 1000})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].ID != "good" {
		t.Errorf("stored are %v, %v", page.Messages, err)
	}
}

// TestFailedCommit shows that a store whose disk fails stops writing, and
// says so.
func TestFailedCommit(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := openIn(t, dir)
	if err := s.Register(ctx, "beta"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, messageTo("beta", "kept", 10)); err != nil {
		t.Fatal(err)
	}
	// The write connection now fails as it does on a file system that was
	// remounted read-only.
	if err := s.write(ctx, func(*tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.conn.ExecContext(ctx, `PRAGMA query_only = ON`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, messageTo("beta", "lost", 10)); err == nil {
		t.Fatal("a write that failed was reported as done")
	}
	<-s.Failed()
	if s.Err() == nil {
		t.Error("the store does not say why it failed")
	}
	if _, err := s.writer.conn.ExecContext(ctx, `PRAGMA query_only = OFF`); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(ctx); err == nil {
		t.Error("a failed store writes again")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := openIn(t, dir)
	page, err := again.Poll(ctx, store.PollQuery{Agent: "beta", Limit: 10, MaxBytes: 1000})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].ID != "kept" {
		t.Errorf("after the restart there are %v, %v", page.Messages, err)
	}
}

func TestCallerThatGivesUp(t *testing.T) {
	s := openIn(t, t.TempDir())
	if err := s.Register(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	enter, held := hold(s)
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := s.Enqueue(ctx, messageTo("beta", "late", 10))
		gaveUp <- err
	}()
	waitQueued(s, 1)
	cancel()
	if err := <-gaveUp; !errors.Is(err, agentrelay.ErrBusy) {
		t.Errorf("giving up answers %v", err)
	}
	close(enter)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil { // the queue is through
		t.Fatal(err)
	}
	found, err := s.Messages(t.Context(), "beta", []string{"late"})
	if err != nil || len(found) != 0 {
		t.Errorf("what was given up is stored: %v, %v", found, err)
	}
}

func TestClosedStoreRefusesWrites(t *testing.T) {
	s := openIn(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); !errors.Is(err, agentrelay.ErrBusy) {
		t.Errorf("a closed store answers %v", err)
	}
}

// hold keeps the writer busy until enter is closed.
func hold(s *Store) (enter chan struct{}, result chan error) {
	enter, result = make(chan struct{}), make(chan error, 1)
	began := make(chan struct{})
	go func() {
		result <- s.write(context.Background(), func(*tx) error {
			close(began)
			<-enter
			return nil
		})
	}()
	<-began
	return enter, result
}

// waitQueued waits until n operations wait for the writer.
func waitQueued(s *Store, n int) {
	for queued := 0; queued < n; runtime.Gosched() {
		s.writer.mu.Lock()
		queued = len(s.writer.queue)
		s.writer.mu.Unlock()
	}
}

func limitPages(t *testing.T, s *Store, pages int) {
	t.Helper()
	if _, err := s.writer.conn.ExecContext(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)); err != nil {
		t.Fatal(err)
	}
}
