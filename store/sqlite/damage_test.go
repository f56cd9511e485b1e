package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// damages collects what a store reports.
type damages struct {
	mu   sync.Mutex
	list []store.Damage
}

func (d *damages) add(found store.Damage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, found)
}

func (d *damages) all() []store.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// openDamaged opens a store that reports damage.
func openDamaged(t *testing.T, dir string) (*Store, *damages, error) {
	t.Helper()
	d := &damages{}
	s, err := Open(t.Context(), Options{Dir: dir, Options: store.Options{Damaged: d.add}})
	return s, d, err
}

// copyStore copies the files of a store, open or not, as a crash leaves them.
func copyStore(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{databaseFile, databaseFile + "-wal", witnessFile} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func sendTo(t *testing.T, s *Store, from, to int) {
	t.Helper()
	if err := s.Register(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if _, err := s.Enqueue(t.Context(), messageTo("beta", fmt.Sprint("m", i), i*37%9000)); err != nil {
			t.Fatal(err)
		}
	}
}

// inboxOf is all that beta can poll, by id.
func inboxOf(t *testing.T, s *Store) (map[string]string, error) {
	t.Helper()
	found := map[string]string{}
	for since := ""; ; {
		page, err := s.Poll(t.Context(), store.PollQuery{Agent: "beta", Since: since, Limit: 50, MaxBytes: agentrelay.MaxPageBytes})
		if err != nil || len(page.Messages) == 0 {
			return found, err
		}
		for _, m := range page.Messages {
			found[m.ID] = string(m.Body)
		}
		since = page.Cursor
	}
}

func TestDamagedMessageIsNotDelivered(t *testing.T) {
	dir := t.TempDir()
	s, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 0, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, dir, `UPDATE messages SET body = X'22666f7267656422' WHERE id IN ('m0', 'm1'); UPDATE messages SET reply_to = 'x' WHERE id = 'm3'`)
	s, d, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-s.health.checked
	if found := d.all(); len(found) != 0 {
		t.Errorf("a store that was closed well is checked at its start: %v", found)
	}
	page, err := s.Poll(t.Context(), store.PollQuery{Agent: "beta", Limit: 2, MaxBytes: agentrelay.MaxPageBytes})
	if err != nil || len(page.Messages) != 2 || page.Messages[0].ID != "m2" || page.Messages[1].ID != "m4" {
		t.Errorf("polled %v, %v", page.Messages, err)
	}
	leased, err := s.Lease(t.Context(), store.LeaseRequest{Agent: "beta", Limit: 10, MaxBytes: agentrelay.MaxPageBytes, For: time.Minute})
	if err != nil || len(leased) != 2 || leased[0].ID != "m2" {
		t.Errorf("leased %v, %v", leased, err)
	}
	listed, err := s.Query(t.Context(), store.Filter{Agent: "beta", Limit: 10, MaxBytes: agentrelay.MaxPageBytes})
	if err != nil || len(listed) != 2 {
		t.Errorf("listed %v, %v", listed, err)
	}
	var ids []string
	for _, found := range d.all() {
		ids = append(ids, found.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"m0", "m1", "m3"}) {
		t.Errorf("damaged are %v, each to be told once", ids)
	}
}

// A store that was not closed well is checked, and one in order passes.
func TestCheckAfterCrash(t *testing.T) {
	dir := t.TempDir()
	s, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-s.health.checked
	sendTo(t, s, 0, inspectChunk+10)
	for name, c := range map[string]struct{ change, want string }{
		"in order":   {`SELECT 1`, ""},
		"a body":     {`UPDATE messages SET body = X'31' WHERE id = 'm505'`, "m505"},
		"no body":    {`UPDATE messages SET body = NULL WHERE id = 'm7'`, "m7"},
		"a state":    {`UPDATE messages SET status = 'gone' WHERE id = 'm8'`, "m8"},
		"times":      {`UPDATE messages SET expires_at = 1 + ts WHERE id = 'm9'`, "m9"},
		"expiry":     {`UPDATE messages SET expires_at = ts - 1, due_at = ts - 1 WHERE id = 'm9'`, "m9"},
		"a counter":  {`UPDATE agents SET waiting = 3`, "counters"},
		"a position": {`UPDATE agents SET position = 3`, "counters"},
		"an index":   {`PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'messages_due'; PRAGMA writable_schema = OFF`, "Page"},
	} {
		t.Run(name, func(t *testing.T) {
			crashed := copyStore(t, dir)
			change(t, crashed, c.change)
			again, d, err := openDamaged(t, crashed)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			<-again.health.checked
			found := fmt.Sprint(d.all())
			if c.want == "" && found != "[]" || !strings.Contains(found, c.want) {
				t.Errorf("found %s, want %q", found, c.want)
			}
		})
	}
}

func TestWitness(t *testing.T) {
	dir := t.TempDir()
	s, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 0, 20)
	older := copyStore(t, dir)
	sendTo(t, s, 20, 21)
	crashed := copyStore(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if s, _, err = openDamaged(t, other); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 0, 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	move := func(t *testing.T, from, to, name string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir string)
		want string
	}{
		"as it was":  {func(*testing.T, string) {}, ""},
		"an old log": {func(t *testing.T, dir string) { move(t, older, dir, databaseFile+"-wal") }, "damaged or an old copy"},
		"a cut log": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, databaseFile+"-wal")
			info, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, info.Size()-1)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "damaged or an old copy"},
		"no log": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, databaseFile+"-wal")); err != nil {
				t.Fatal(err)
			}
		}, "another was put into its place"},
		"another database": {func(t *testing.T, dir string) {
			move(t, other, dir, databaseFile)
			if err := os.Remove(filepath.Join(dir, databaseFile+"-wal")); err != nil {
				t.Fatal(err)
			}
		}, "another was put into its place"},
		"no database": {func(t *testing.T, dir string) {
			for _, name := range []string{databaseFile, databaseFile + "-wal"} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}, "is gone"},
		"a witness that was cut off": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, witnessFile), 10); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"no witness": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, witnessFile)); err != nil {
				t.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := copyStore(t, crashed)
			c.do(t, at)
			s, _, err := openDamaged(t, at)
			if err == nil {
				defer s.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if err != nil {
				return
			}
			if got, err := inboxOf(t, s); err != nil || len(got) != 21 {
				t.Errorf("%d messages, %v", len(got), err)
			}
		})
	}
}

// A slot that was not written to its end leaves the other.
func TestWitnessSlots(t *testing.T) {
	path := filepath.Join(t.TempDir(), witnessFile)
	w, err := openWitness(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(8) {
		if err := w.record(n, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.file.WriteAt([]byte("x"), 7%2*slotStride+30); err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := openWitness(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.file.Close()
	if again.seen.commits != 6 {
		t.Errorf("the witness tells of %d commits, want those of the slot that is left, 6", again.seen.commits)
	}
}

// TestWitnessFails shows that nothing is acknowledged that the witness did not
// hear of.
func TestWitnessFails(t *testing.T) {
	s := openIn(t, t.TempDir())
	if err := s.witness.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(t.Context(), "beta"); err == nil {
		t.Error("a write was acknowledged without its witness")
	}
	<-s.Failed()
}

// harm is one way to damage a store.
type harm struct {
	name string
	do   func(r *rand.Rand, data []byte) []byte
}

var harms = []harm{
	{"flip", func(r *rand.Rand, data []byte) []byte {
		data[r.IntN(len(data))] ^= byte(1 + r.IntN(255))
		return data
	}},
	{"cut", func(r *rand.Rand, data []byte) []byte { return data[:r.IntN(len(data))] }},
	{"zero", func(r *rand.Rand, data []byte) []byte {
		page := r.IntN((len(data) + 4095) / 4096)
		clear(data[page*4096 : min(len(data), page*4096+4096)])
		return data
	}},
}

// TestDamage damages the files of a store at random places. Each start must
// serve all that was acknowledged, or say that something is damaged, or refuse.
func TestDamage(t *testing.T) {
	places := 500
	if testing.Short() {
		places = 50
	}
	dir := t.TempDir()
	s, _, err := openDamaged(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 0, 40)
	older := copyStore(t, dir)
	// What is in the database alone, and what is in the log.
	if _, err := s.writer.conn.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`); err != nil {
		t.Fatal(err)
	}
	sendTo(t, s, 40, 60)
	want, err := inboxOf(t, s)
	if err != nil || len(want) != 60 {
		t.Fatal(len(want), err)
	}
	crashed := copyStore(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	outcomes := map[string]int{}
	t.Run("places", func(t *testing.T) {
		for worker := range damageWorkers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(20261130, uint64(worker)))
				for i := worker; i < places; i += damageWorkers {
					what, at := damageOne(t, r, i, crashed, older)
					outcome := outcomeOf(t, at, want)
					if outcome == lostSilently {
						t.Errorf("place %d, %s: %s", i, what, outcome)
					}
					mu.Lock()
					outcomes[outcome]++
					mu.Unlock()
				}
			})
		}
	})
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%s: %d of %d", outcome, outcomes[outcome], places)
	}
}

const (
	damageWorkers = 4
	lostSilently  = "lost silently"
)

// damageOne makes a damaged copy of a store, at a place of its own.
func damageOne(t *testing.T, r *rand.Rand, place int, crashed, older string) (what, dir string) {
	t.Helper()
	dir = copyStore(t, crashed)
	if place%25 == 24 {
		for _, name := range []string{databaseFile, databaseFile + "-wal"} {
			harmFile(t, filepath.Join(dir, name), func([]byte) []byte { return read(t, filepath.Join(older, name)) })
		}
		return "an older copy", dir
	}
	how := harms[r.IntN(len(harms))]
	name := databaseFile
	if r.IntN(2) == 1 {
		name += "-wal"
	}
	harmFile(t, filepath.Join(dir, name), func(data []byte) []byte { return how.do(r, data) })
	return how.name + " in " + name, dir
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func harmFile(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	if err := os.WriteFile(path, how(read(t, path)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// outcomeOf starts a store, and asks for all that it should have.
func outcomeOf(t *testing.T, dir string, want map[string]string) string {
	t.Helper()
	s, d, err := openDamaged(t, dir)
	if err != nil {
		return "refused"
	}
	defer s.Close()
	got, err := inboxOf(t, s)
	<-s.health.checked
	agents, agentsErr := s.Agents(t.Context())
	switch {
	case len(d.all()) > 0:
		for id, body := range got {
			if want[id] != body {
				t.Errorf("%s was delivered with another body", id)
			}
		}
		return "damaged"
	case err == nil && agentsErr == nil && len(agents) == 1 && maps.Equal(got, want):
		return "served all"
	}
	return lostSilently
}

func TestStoreOnNetworkIsRefused(t *testing.T) {
	if err := refuseNetwork(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there was not refused")
	}
	if err := refuseNetwork(t.TempDir()); err != nil {
		t.Error(err)
	}
}
