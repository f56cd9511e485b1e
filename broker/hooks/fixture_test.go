//go:build !windows

package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// TestMain runs the tests, or, as a hook, the script that the name stands for:
// what follows the first dash of it. What a script needs to know it finds in
// the file NAME.arg.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT_RELAY_HOOK_KIND") != "" {
		_, script, _ := strings.Cut(filepath.Base(os.Args[0]), "-")
		syscall.Exit(scripts[script]()) // os.Exit takes a second under the race detector
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		removeTestScript()
		os.Exit(status)
	}))
}

// A gate is two named pipes. Somebody who passes it opens the first, which
// tells that he is there, and goes on when the second is opened and closed.
type gate struct {
	t    *testing.T
	path string
	// held is an end of the first pipe. It reads the end of file when nobody
	// who is at the gate, or was, lives any more.
	held *os.File
}

func newGate(t *testing.T) *gate {
	g := &gate{t: t, path: filepath.Join(t.TempDir(), "gate")}
	for _, name := range []string{g.path + ".there", g.path + ".go"} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// await waits until n more are at the gate.
func (g *gate) await(n int) {
	g.t.Helper()
	if g.held == nil {
		var err error
		if g.held, err = os.Open(g.path + ".there"); err != nil {
			g.t.Fatal(err)
		}
		g.t.Cleanup(func() { _ = g.held.Close() })
	}
	for n > 0 {
		switch read, err := g.held.Read(make([]byte, n)); {
		case err == nil:
			n -= read
		case errors.Is(err, io.EOF): // those before have gone
			_ = g.held.Close()
			if g.held, err = os.Open(g.path + ".there"); err != nil {
				g.t.Fatal(err)
			}
		default:
			g.t.Fatal(err)
		}
	}
}

// open lets one through who is there.
func (g *gate) open() {
	g.t.Helper()
	f, err := os.OpenFile(g.path+".go", os.O_WRONLY, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		g.t.Fatal(err)
	}
}

// awaitGone waits until all who were at the gate have ended.
func (g *gate) awaitGone() {
	g.t.Helper()
	if rest, err := io.ReadAll(g.held); err != nil || len(rest) > 0 {
		g.t.Fatalf("at the gate: %q, %v", rest, err)
	}
}

// testScript is a copy of this program that is fit to be a script.
var testScript = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "hooks-test-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "script")
	return path, os.WriteFile(path, program, 0o700)
})

func removeTestScript() {
	if path, err := testScript(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}

// fixture is a dispatcher that runs, and its hooks.d.
type fixture struct {
	*Dispatcher
	t   *testing.T
	dir string
	// stop ends Run and waits for it.
	stop func()
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "hooks.d")}
	o.Dir = f.dir
	if o.Timeout == 0 {
		o.Timeout = time.Minute // longer than any test
	}
	for _, k := range hook.Kinds() {
		if err := os.MkdirAll(filepath.Join(f.dir, string(k)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	d.watches = false // what a test installs counts at once
	f.Dispatcher = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// path is that of a script, or of another file, of pre-message.
func (f *fixture) path(name string) string {
	return filepath.Join(f.dir, string(hook.PreMessage), name)
}

// install makes the test program a script of pre-message.
func (f *fixture) install(names ...string) {
	f.t.Helper()
	f.installFor(hook.PreMessage, names...)
}

func (f *fixture) installFor(kind hook.Kind, names ...string) {
	f.t.Helper()
	script, err := testScript()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Symlink(script, filepath.Join(f.dir, string(kind), name)); err != nil {
			f.t.Fatal(err)
		}
	}
}

// write makes a file in pre-message.
func (f *fixture) write(name, text string, mode os.FileMode) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chmod(f.path(name), mode); err != nil {
		f.t.Fatal(err)
	}
}

// gated installs a script of a kind that waits at a gate.
func (f *fixture) gated(kind hook.Kind, name string) *gate {
	f.t.Helper()
	f.installFor(kind, name)
	g := newGate(f.t)
	if err := os.WriteFile(filepath.Join(f.dir, string(kind), name+".arg"), []byte(g.path), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return g
}

func (f *fixture) read(name string) string {
	f.t.Helper()
	text, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// fire fires pre-message.
func (f *fixture) fire(payload string) hook.Result {
	f.t.Helper()
	return f.Fire(context.Background(), hook.PreMessage, json.RawMessage(payload))
}

// want fires pre-message and checks the answer, in which any id or path is
// fine.
func (f *fixture) want(answer string) hook.Result {
	f.t.Helper()
	r := f.fire("")
	if got := string(r.AppendJSON(nil, 1<<20)); got != answer {
		f.t.Errorf("got  %s\nwant %s", got, answer)
	}
	return r
}

// waitFor waits until try succeeds.
func waitFor(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func exists(path string) func() error {
	return func() error {
		_, err := os.Stat(path)
		return err
	}
}

var errNotYet = errors.New("it has not happened")
