//go:build !windows

package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

func TestFireLater(t *testing.T) {
	var log bytes.Buffer
	done := make(chan hook.Result, 10)
	f := newFixture(t, Options{
		MaxConcurrent: 1, Queue: 2,
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
		Done: func(_ hook.Kind, r hook.Result) { done <- r },
	})
	g := f.gated(hook.PreMessage, "1-gate")
	f.install("2-echo")
	fire := func(n int) bool { return f.FireLater(hook.PreMessage, json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))) }
	if !fire(0) {
		t.Error("the first event was dropped")
	}
	g.await(1) // it is no longer queued
	for n, want := range []bool{1: true, 2: true, 3: false, 4: false} {
		if n > 0 && fire(n) != want {
			t.Errorf("event %d: kept %t, want %t", n, !want, want)
		}
	}
	if s := f.Stats(); s.Dropped != 2 || s.Queued != 2 {
		t.Errorf("stats %+v", s)
	}
	if got := strings.Count(log.String(), "events were dropped"); got != 1 {
		t.Errorf("the log was told %d times:\n%s", got, &log)
	}
	// Where nothing is installed there is nothing to queue, nor to drop.
	if !f.FireLater(hook.CostAlert, nil) || f.Stats().Queued != 2 {
		t.Errorf("an event with nothing to run was queued or dropped: %+v", f.Stats())
	}
	for n := range 3 {
		if n > 0 {
			g.await(1)
		}
		g.open()
		if r := <-done; !r.OK || len(r.Runs) != 2 {
			t.Errorf("event %d: %+v", n, r)
		}
		if got, want := f.read("echo.out"), fmt.Sprintf(`{"n":%d}`, n); got != want {
			t.Errorf("event %d: the script got %s, want %s", n, got, want)
		}
	}
}

// The end drops what is queued, and says so.
func TestFireLaterAtTheEnd(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, Options{MaxConcurrent: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	g := f.gated(hook.PreMessage, "1-gate")
	for range 3 {
		f.FireLater(hook.PreMessage, nil)
	}
	g.await(1)
	f.stop()
	if f.FireLater(hook.PreMessage, nil) {
		t.Error("an event was kept after the end")
	}
	if s := f.Stats(); s.Dropped != 3 || s.Queued != 0 || s.Failed != 1 {
		t.Errorf("stats %+v", s)
	}
	if want := `msg="hooks that waited were dropped at the end" dropped=2`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, &log)
	}
	if strings.Contains(log.String(), "too many") {
		t.Errorf("the end is logged as an overflow:\n%s", &log)
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	q := newQueue(10)
	half := event{payload: make([]byte, maxQueuedBytes/2)}
	for i, want := range []bool{true, true, false} {
		if got := q.push(half); got != want {
			t.Errorf("push %d: %t, want %t", i, got, want)
		}
	}
	if q.push(event{payload: []byte("x")}) {
		t.Error("a byte too many was kept")
	}
	if _, ok := q.pop(nil); !ok || !q.push(half) {
		t.Error("what was taken still counts")
	}
	if n := q.clear(); n != 2 || q.bytes != 0 || q.len() != 0 {
		t.Errorf("cleared %d, and %d bytes are left", n, q.bytes)
	}
	done := make(chan struct{})
	close(done)
	q.push(half)
	if _, ok := q.pop(done); ok {
		t.Error("something was taken after the end")
	}
}

func TestDropsAreLoggedOnceAMinute(t *testing.T) {
	var d drops
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 0}, {59 * time.Second, 0}, {time.Second, 3}, {time.Minute - 1, 0}, {1, 2}} {
		now = now.Add(step.after)
		if got := d.note(now); got != step.want {
			t.Errorf("step %d: %d to log, want %d", i, got, step.want)
		}
	}
}

// Installed looks at most twice a second, and a new script is noticed within
// one second, whether or not Run looks ahead.
func TestInstalled(t *testing.T) {
	t.Run("asked", func(t *testing.T) { testInstalled(t, false) })
	t.Run("watched", func(t *testing.T) { testInstalled(t, true) })
}

func testInstalled(t *testing.T, watched bool) {
	dir := filepath.Join(t.TempDir(), "hooks.d")
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer d.end(errShutdown)
		if watched {
			go d.watch(d.life.Done())
			synctest.Wait()
		}
		check := func(want bool) {
			t.Helper()
			if got := d.Installed(hook.PreMessage); got != want {
				t.Errorf("installed: %t, want %t", got, want)
			}
		}
		check(false)
		path := filepath.Join(dir, "pre-message", "script")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		check(false) // it has no execute bit
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
		check(false)
		time.Sleep(installedFor - 1)
		check(false)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		check(true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check(true)
		if d.Installed(hook.PostMessage) {
			t.Error("one kind is taken for another")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		check(false)
		if watched {
			// Nothing is left to whoever asks.
			if err := os.WriteFile(path, nil, 0o700); err != nil {
				t.Fatal(err)
			}
			d.installed.mu.Lock()
			d.installed.kinds[hook.PreMessage] = seen{}
			d.installed.mu.Unlock()
			check(false)
		}
	})
}

// BenchmarkInstalled is what a message costs where there are no hooks.
func BenchmarkInstalled(b *testing.B) {
	d, err := New(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d.FireLater(hook.PreMessage, nil)
	}
}

// The events that wait are run by as many as may run at a time.
func TestFireLaterRunsConcurrently(t *testing.T) {
	var done atomic.Int64
	f := newFixture(t, Options{MaxConcurrent: 2, Done: func(hook.Kind, hook.Result) { done.Add(1) }})
	gates := []*gate{f.gated(hook.PreMessage, "1-gate"), f.gated(hook.PostMessage, "1-gate"), f.gated(hook.CostAlert, "1-gate")}
	for _, k := range []hook.Kind{hook.PreMessage, hook.PostMessage, hook.CostAlert} {
		f.FireLater(k, nil)
	}
	gates[0].await(1)
	gates[1].await(1)
	if s := f.Stats(); s.Queued != 1 {
		t.Errorf("stats %+v", s)
	}
	// Those who enforce are not held up.
	if r := f.Enforce(context.Background(), hook.UpdateApplied, nil); !r.OK {
		t.Errorf("got %+v", r)
	}
	for _, g := range gates[:2] {
		g.open()
	}
	gates[2].await(1)
	gates[2].open()
	waitFor(t, func() error {
		if done.Load() == 3 {
			return nil
		}
		return errNotYet
	})
}

// Run looks ahead by itself, and no more once it has ended.
func TestRunWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New(Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		synctest.Wait()
		if !d.installed.watched || len(d.installed.kinds) != len(hook.Kinds()) {
			t.Errorf("watched: %t, seen: %v", d.installed.watched, d.installed.kinds)
		}
		stop()
		if err := <-ended; err != nil || d.installed.watched {
			t.Errorf("watched after the end: %t, %v", d.installed.watched, err)
		}
	})
}
