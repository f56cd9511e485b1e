package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-relay/agent-relay/client"
)

// flood opens connections and says something on each; what becomes of them does
// not matter.
func flood(t *testing.T, r *relay, n int, say string) {
	t.Helper()
	address := strings.TrimPrefix(r.url, "http://")
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, say) // the broker may have closed it
	}
}

// wantServed has a new client and one that was there before send to each other.
func wantServed(t *testing.T, r *relay, old *client.Client) {
	t.Helper()
	fresh := r.registered("fresh")
	defer r.signed.CloseIdleConnections()
	for _, way := range []struct {
		from *client.Client
		to   string
	}{{old, "fresh"}, {fresh, "old"}} {
		if _, err := way.from.Send(t.Context(), client.Outgoing{To: way.to}); err != nil {
			t.Errorf("to %s: %v", way.to, err)
		}
	}
}

// Connections that do nothing, or send their headers or bodies byte by byte,
// keep nobody out.
func TestFloods(t *testing.T) {
	for name, say := range map[string]string{
		"idle":    "",
		"headers": "GET /peers HTTP/1.1\r\nHost: localhost\r\nX-Relay-Agent: mal",
		"bodies": fmt.Sprintf("POST /messages HTTP/1.1\r\nHost: localhost\r\nX-Relay-Agent: mallory\r\nX-Relay-Timestamp: 1\r\n"+
			"X-Relay-Signature: %s\r\nContent-Length: 1000\r\n\r\n{", strings.Repeat("0", 64)),
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, relayOptions{})
			old := r.registered("old")
			flood(t, r, 2000, say)
			wantServed(t, r, old)
		})
	}
}

// A broker that may open no more files serves those whom it has, and others
// when it may again.
func TestNoMoreFiles(t *testing.T) {
	r := startRelay(t, relayOptions{})
	old := r.registered("old")
	if _, err := old.Peers(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	pid := r.command.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 48, Max: 1 << 12}, &before); err != nil {
		t.Skipf("the limit of another process cannot be set: %v", err)
	}
	flood(t, r, 200, "")
	r.waitLog("too many open files")
	if _, err := old.Send(t.Context(), client.Outgoing{To: "old2"}); err == nil {
		t.Error("a message to nobody is accepted")
	}
	if _, err := old.Peers(t.Context()); err != nil {
		t.Errorf("a client that was there before is not served: %v", err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 12, Max: 1 << 12}, nil); err != nil {
		t.Fatal(err)
	}
	wantServed(t, r, old)
}

// For one connection too many, the one is closed that has been idle for longest.
func TestMaxConnections(t *testing.T) {
	r := startRelay(t, relayOptions{lines: []string{"max_connections: 16"}})
	oldest, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer oldest.Close()
	// After a request it may be idle for longer than this test takes.
	if _, err := io.WriteString(oldest, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(oldest)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	// The broker may notice only now that the first one is idle, so more come
	// than it would take.
	flood(t, r, 200, "")
	if err := oldest.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection was not closed: %v", err)
	}
}

// patience is how long something may take to happen.
const patience = 30 * time.Second
