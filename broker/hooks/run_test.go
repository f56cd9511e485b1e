//go:build !windows

package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/internal/hook"
)

func TestSurroundings(t *testing.T) {
	t.Setenv("AGENT_RELAY_SECRET", "secret")
	t.Setenv("LD_PRELOAD_NOT", "secret")
	for name, value := range map[string]string{"PATH": "/bin:/usr/bin", "HOME": "/home/ann", "LANG": "C.UTF-8", "TZ": "Asia/Tokyo"} {
		t.Setenv(name, value)
	}
	t.Setenv("TMPDIR", "") // not passed on when empty
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	inherited, err := syscall.Dup(2) // as if somebody had left it open
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	f := newFixture(t, Options{Env: os.Getenv})
	f.install("1-surroundings")
	for _, dir := range []string{f.dir, f.path("")} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := f.want(`{"ok":true,"errors":[]}`)
	var got map[string]any
	if err := json.Unmarshal([]byte(f.read("surroundings.out")), &got); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(f.path(""))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"args": []any{"./1-surroundings"},
		"env": []any{
			"PATH=/bin:/usr/bin", "HOME=/home/ann", "LANG=C.UTF-8", "TZ=Asia/Tokyo",
			"AGENT_RELAY_HOOK_KIND=pre-message", "AGENT_RELAY_HOOK_ID=" + r.ID,
		},
		"dir": dir, "mode": 0o600 * 1.0, "leads": true, "open": nil,
	}
	if runtime.GOOS == "linux" {
		want["open"] = []any{"0 pipe", "1 /dev/null", "2 pipe"}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if after := syscall.Umask(0); after != 0 {
		t.Errorf("the umask is left at %04o", after)
	}
}

// A relay that has no PATH gives its scripts one.
func TestDefaultPath(t *testing.T) {
	env := environment(func(string) string { return "" })
	if diff := cmp.Diff([]string{"PATH=" + defaultPath}, env); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTimeout(t *testing.T) {
	f := newFixture(t, Options{Timeout: 50 * time.Millisecond})
	f.gated(hook.PreMessage, "1-gate")
	f.gated(hook.PreMessage, "2-gate")
	f.want(`{"ok":false,"errors":[{"script":"1-gate","reason":"timed out (>50ms)"},{"script":"2-gate","reason":"timed out (>50ms)"}]}`)
	wantNoChildren(t)
}

// The whole group goes, however little it wants to; and its number is not
// looked for afterwards.
func TestTimeoutKillsTheGroup(t *testing.T) {
	f := newFixture(t, Options{Timeout: 3 * time.Second})
	g := f.gated(hook.PreMessage, "1-stubborn")
	ended := make(chan hook.Result, 1)
	go func() { ended <- f.fire(`{"text":"` + strings.Repeat("x", 200_000) + `"}`) }()
	g.await(2)
	g.awaitGone()
	want := []hook.Failure{{Script: "1-stubborn", Reason: "timed out (>3s)"}}
	if diff := cmp.Diff(want, (<-ended).Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantNoChildren(t)
}

// When the one who fired loses interest, the script is killed, and those after
// it are not started.
func TestCancel(t *testing.T) {
	f := newFixture(t, Options{})
	g := f.gated(hook.PreMessage, "1-stubborn")
	f.install("2-order")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan hook.Result, 1)
	go func() { ended <- f.Enforce(ctx, hook.PreMessage, nil) }()
	g.await(2)
	cancel()
	g.awaitGone()
	want := []hook.Failure{
		{Script: "1-stubborn", Reason: "stopped: context canceled"},
		{Script: "2-order", Reason: "stopped: context canceled"},
	}
	if diff := cmp.Diff(want, (<-ended).Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := os.Stat(f.path("order.out")); err == nil {
		t.Error("the second script was started")
	}
}

// A process that a script leaves behind does not hold the answer; it lives on,
// and its pipes work.
func TestDaemon(t *testing.T) {
	f := newFixture(t, Options{})
	g := f.gated(hook.PreMessage, "1-daemon")
	payload := `{"text":"` + strings.Repeat("x", 300_000) + `"}`
	r := f.fire(payload) // that it ends is the point: the child waits
	if !r.OK || len(r.Runs) != 1 || r.Runs[0].StderrTail != "started" {
		t.Errorf("got %+v", r)
	}
	g.await(1)
	g.open()
	waitFor(t, exists(f.path("lived.out")))
	if got, want := f.read("lived.out"), fmt.Sprint(len(payload)); got != want {
		t.Errorf("the child read %s bytes, want %s", got, want)
	}
	g.awaitGone()
}

// At the end of the relay, what was left behind lives on too.
func TestDaemonOutlivesTheRelay(t *testing.T) {
	f := newFixture(t, Options{})
	g := f.gated(hook.PreMessage, "1-daemon")
	f.fire("")
	g.await(1)
	f.stop()
	g.open() // somebody is there
	g.awaitGone()
}

func TestLingeringPipesAreBounded(t *testing.T) {
	var p pipes
	var readers []*os.File
	for range maxLingering + 2 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		readers = append(readers, r)
		p.hold(r)
		p.linger(r)
		p.linger(r) // twice is once
	}
	for i, r := range readers {
		if open := r.Close() == nil; open != (i < maxLingering) {
			t.Errorf("pipe %d is open: %t", i, open)
		}
	}
	p.release(readers[0])
	p.linger(readers[0]) // released already
	if p.lingering != maxLingering-1 {
		t.Errorf("%d linger", p.lingering)
	}
	p.closeAll()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if p.hold(r); r.Close() == nil {
		t.Error("a pipe is open after all were closed")
	}
}

func TestSignal(t *testing.T) {
	f := newFixture(t, Options{})
	f.install("1-signal")
	f.want(`{"ok":false,"errors":[{"script":"1-signal","code":-1}]}`)
}

// A script that does not die, though it was killed, holds the answer for a
// moment only.
func TestUnkillable(t *testing.T) {
	f := newFixture(t, Options{Timeout: 50 * time.Millisecond})
	g := f.gated(hook.PreMessage, "1-gate")
	killed := make(chan int, 1)
	f.runner.kill = func(group int) { killed <- group }
	f.want(`{"ok":false,"errors":[{"script":"1-gate","reason":"timed out (>50ms)"}]}`)
	g.await(1)
	killGroup(<-killed)
	f.stop() // waits for it
	wantNoChildren(t)
}

// The end of the relay ends scripts that run and events that wait.
func TestShutdown(t *testing.T) {
	f := newFixture(t, Options{MaxConcurrent: 1})
	g := f.gated(hook.PreMessage, "1-stubborn")
	results := make(chan hook.Result, 3)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { results <- f.fire("") })
	}
	g.await(2)
	waitFor(t, func() error {
		if f.Stats().Waiting == 1 {
			return nil
		}
		return errNotYet
	})
	f.stop()
	all.Wait()
	g.awaitGone()
	results <- f.fire("") // too late
	var scripts []string
	for range 3 {
		r := <-results
		if len(r.Errors) != 1 || r.Errors[0].Reason != "stopped: the relay is shutting down" {
			t.Errorf("got %+v", r)
			continue
		}
		scripts = append(scripts, r.Errors[0].Script)
	}
	slices.Sort(scripts)
	if diff := cmp.Diff([]string{"-", "-", "1-stubborn"}, scripts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantNoChildren(t)
}

// wantNoChildren checks that no child of this process is left, dead or alive.
func wantNoChildren(t *testing.T) {
	t.Helper()
	if os.Getpid() == 1 {
		return // orphans fall to this process, and are reaped in a moment
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("child %d is left, %v", pid, err)
	}
}

// How a process ended that somebody else has reaped is not known, so it did
// not end well.
func TestReapedByOthers(t *testing.T) {
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 0"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(p.Pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	c := &child{pid: p.Pid, process: p}
	c.untilExited()
	c.wait()
	if code := c.state.ExitCode(); code != -1 {
		t.Errorf("code %d, want -1", code)
	}
}
