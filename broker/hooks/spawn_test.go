//go:build !windows

package hooks

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/internal/hook"
)

func TestSpawnFailures(t *testing.T) {
	f := newFixture(t, Options{})
	f.write("1-text", "echo no interpreter is named\n", 0o700)
	f.write("2-lost", "#!/no/such/interpreter\n", 0o700)
	f.write("3-directory", "#!/\n", 0o700)
	f.write("4-fine", "#!/bin/sh\n", 0o700)
	f.want(`{"ok":false,"errors":[` +
		`{"script":"1-text","reason":"spawn failed: exec format error; begin it with a line such as #!/bin/sh"},` +
		`{"script":"2-lost","reason":"spawn failed: no such file or directory; the interpreter that its first line names does not exist"},` +
		`{"script":"3-directory","reason":"spawn failed: permission denied; the relay's user may not execute it, or its file system is mounted noexec"}]}`)
}

func TestExplain(t *testing.T) {
	for err, want := range map[error]string{
		&os.PathError{Op: "x", Path: "y", Err: syscall.EAGAIN}: "resource temporarily unavailable",
		os.NewSyscallError("pipe2", syscall.EMFILE):            "pipe2: too many open files; raise the limit of open files",
		errors.Join(syscall.ENFILE, nil):                       "too many open files in system; raise the limit of open files",
	} {
		if got := explain(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Where no descriptor is left, the event fails and nothing stays open.
func TestNoDescriptorsLeft(t *testing.T) {
	f := newFixture(t, Options{})
	f.install("1-pass")
	f.fire("") // what Go keeps open for itself is open from now on
	before := countDescriptors(t)
	for tried := range 6 {
		taken, left := takeDescriptors(t, tried)
		r := f.fire("")
		for _, fd := range taken {
			_ = syscall.Close(fd)
		}
		if r.OK || len(r.Errors) != 1 || !strings.Contains(r.Errors[0].Reason, "too many open files") {
			t.Errorf("with %d descriptors left: %+v", left, r)
		}
		// Fewer may be: the collector closes what earlier tests lost.
		if after := countDescriptors(t); after > before {
			t.Errorf("with %d descriptors left: %d are open afterwards, were %d", left, after, before)
		}
	}
	f.want(`{"ok":true,"errors":[]}`)
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// takeDescriptors takes all descriptors that a lowered limit leaves, but for
// those that a tree takes and n pairs more.
func takeDescriptors(t *testing.T, n int) (taken []int, left int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 128
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) })
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	left = n + n/3 // for parts of the tree, of the pipes, and for all but /dev/null
	for range left {
		_ = syscall.Close(taken[len(taken)-1])
		taken = taken[:len(taken)-1]
	}
	return taken, left
}

// A script that is still being written is waited for, and not for ever.
func TestBusyScript(t *testing.T) {
	f := newFixture(t, Options{})
	f.write("1-copied", "#!/bin/sh\nexit 5\n", 0o700)
	writer, err := os.OpenFile(f.path("1-copied"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := f.fire(""); runtime.GOOS == "linux" {
		want := []hook.Failure{{Script: "1-copied", Reason: "spawn failed: text file busy; close it in whatever writes to it"}}
		if diff := cmp.Diff(want, r.Errors); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	ended := make(chan hook.Result, 1)
	go func() { ended <- f.fire("") }()
	waitFor(t, func() error {
		if f.Stats().Running == 1 {
			return writer.Close()
		}
		return errNotYet
	})
	if diff := cmp.Diff([]hook.Failure{{Script: "1-copied", Code: 5}}, (<-ended).Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Who waits for a script to be free may lose interest.
func TestBusyScriptIsGivenUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("scripts can be executed while they are written to here")
	}
	f := newFixture(t, Options{})
	f.write("1-copied", "#!/bin/sh\n", 0o700)
	writer, err := os.OpenFile(f.path("1-copied"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no longer of interest"))
	tree := openTree(f.dir, hook.PreMessage)
	defer tree.close()
	r := f.runner.run(ctx, tree, "1-copied", execution{timeout: time.Minute})
	if want := "spawn failed: no longer of interest"; r.Reason != want {
		t.Errorf("got %q, want %q", r.Reason, want)
	}
}
