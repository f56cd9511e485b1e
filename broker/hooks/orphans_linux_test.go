package hooks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// A process to which orphans fall, as they do to process 1, reaps those that
// scripts left behind, and only those.
func TestOrphans(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	d, err := New(Options{Dir: t.TempDir(), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	d.runner.adopts = func() bool { return true }
	f := &fixture{Dispatcher: d, t: t, dir: d.o.Dir}
	if err := os.Mkdir(f.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	g := f.gated(hook.PreMessage, "1-daemon")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	// Somebody else's child, which has ended and is not waited for yet.
	other := exec.Command("/bin/sh", "-c", "exit 6")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() error {
		if len(zombies(t)) == 1 {
			return nil
		}
		return errNotYet
	})

	for range 3 {
		if r := f.fire(""); !r.OK {
			t.Errorf("got %+v", r)
		}
		g.await(1)
		g.open()
		g.awaitGone()
		waitFor(t, func() error {
			if z := zombies(t); len(z) != 1 || z[0] != other.Process.Pid {
				return fmt.Errorf("zombies: %v", z)
			}
			return nil
		})
	}
	if err := other.Wait(); err == nil || err.Error() != "exit status 6" {
		t.Errorf("somebody else's child: %v", err)
	}
	wantNoChildren(t)
}

// zombies lists the dead children of this process.
func zombies(t *testing.T) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has gone
		}
		var pid, parent int
		var state string
		_, rest, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(stat), &pid); err != nil {
			t.Fatal(err)
		}
		if state == "Z" && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestOrphaned(t *testing.T) {
	for stat, want := range map[string]bool{
		"12 (sleep) Z 7 30 30 0":       true,
		"12 (a) Z 1 (b)) Z 7 30 30 0":  true,
		"12 (sleep) S 7 30 30 0":       false, // it lives
		"12 (sleep) Z 8 30 30 0":       false, // another's child
		"12 (sleep) Z 7 20 20 0":       false, // in this process's group
		"12 (Z 7 30 30) S 7 30 30 0":   false,
		"12 (sleep) Z":                 false,
		"":                             false,
		"12 (sleep) Z 7x 30 30 0 0 00": false,
	} {
		if got := orphaned(stat, 7, 20); got != want {
			t.Errorf("%q: %t, want %t", stat, got, want)
		}
	}
}

// A script that has just ended is no orphan, though it is not reaped yet.
func TestScriptsAreNoOrphans(t *testing.T) {
	var c children
	p, err := c.start("/bin/sh", &os.ProcAttr{
		Files: []*os.File{nil, nil, nil}, Sys: &unix.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.untilExited()
	c.reapOrphans()
	c.reap(p)
	if p.state == nil || len(c.pids) != 0 {
		t.Errorf("it was reaped by others: %v, %v", p.state, c.pids)
	}
}
