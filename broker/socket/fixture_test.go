//go:build !windows

package socket

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the tests or, where these ask for it, a process that listens
// on a socket until it is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("AGENT_RELAY_TEST_LISTEN"); path != "" {
		if _, err := Listen(Options{Path: path}); err != nil {
			panic(err)
		}
		_ = os.Stdout.Close() // it is ready
		select {}
	}
	goleak.VerifyTestMain(m)
}

// shortDir is a temporary directory with a path that leaves room for a socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// fixture is a server that runs.
type fixture struct {
	*Server
	t   testing.TB
	log *logged
	// stop ends Run and waits for it.
	stop func()
}

func newFixture(t testing.TB, o Options) *fixture {
	t.Helper()
	f := &fixture{t: t, log: &logged{}}
	o.Path = filepath.Join(shortDir(t), "s")
	o.Log = textLogger(f.log)
	var err error
	if f.Server, err = Listen(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *fixture) dial() *net.UnixConn {
	f.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: f.Path(), Net: "unix"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request and returns all that comes back.
func (f *fixture) ask(request string) string {
	f.t.Helper()
	conn := f.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		f.t.Fatal(err)
	}
	return readAll(f.t, conn)
}

// readAll reads until the server closes the connection.
func readAll(t testing.TB, conn net.Conn) string {
	t.Helper()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("after %q: %v", answer, err)
	}
	return string(answer)
}

// logged is what was logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// waitFor waits until the condition holds.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", what)
}
