//go:build !windows

package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A process of another user is disconnected, and told nothing.
func TestForeignPeer(t *testing.T) {
	var asked atomic.Int64
	f := newFixture(t, Options{
		allow: func(uid uint32) bool { asked.Store(int64(uid) + 1); return false },
		Serve: func(context.Context, *Conn) { t.Error("a foreign peer was served") },
	})
	if got := readAll(t, f.dial()); got != "" {
		t.Errorf("a foreign peer was told %q", got)
	}
	if got := asked.Load() - 1; got != int64(os.Geteuid()) {
		t.Errorf("asked about user %d, want %d", got, os.Geteuid())
	}
	if want := fmt.Sprintf(`msg="disconnected another user" socket="" uid=%d`, os.Geteuid()); !strings.Contains(f.log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, f.log)
	}
}

func TestWhoMayConnect(t *testing.T) {
	s := listen(t, shortDir(t)+"/s")
	defer s.Close()
	for uid, want := range map[uint32]bool{0: true, uint32(os.Geteuid()): true, uint32(os.Geteuid()) + 1: false, 1<<32 - 2: false} {
		if got := s.o.allow(uid); got != want {
			t.Errorf("user %d may connect: %t, want %t", uid, got, want)
		}
	}
}

// echo answers lines until there are no more.
func echo(_ context.Context, c *Conn) {
	for {
		line, err := c.ReadLine()
		if err != nil {
			fmt.Fprintf(c, "%d bytes and %v", len(line), err)
			return
		}
		fmt.Fprintf(c, "%d %.10q,", len(line), line)
	}
}

func TestReadLine(t *testing.T) {
	f := newFixture(t, Options{Serve: echo})
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ sent, want string }{
		{"", "0 bytes and EOF"},
		{"a\n", `1 "a",0 bytes and EOF`},
		{"a\n\nb\r\n", `1 "a",0 "",2 "b\r",0 bytes and EOF`},
		{"a\nb", `1 "a",1 "b",0 bytes and EOF`},
		{x(MaxLine), `1048576 "xxxxxxxxxx",0 bytes and EOF`},
		{x(MaxLine) + "\nb", `1048576 "xxxxxxxxxx",1 "b",0 bytes and EOF`},
		{x(4095) + "\n" + x(4096) + "\n", `4095 "xxxxxxxxxx",4096 "xxxxxxxxxx",0 bytes and EOF`},
		{x(MaxLine + 1), "0 bytes and line too long"},
		{x(MaxLine+1) + "\n", "0 bytes and line too long"},
	} {
		conn := f.dial()
		go func() {
			_, _ = io.WriteString(conn, c.sent)
			_ = conn.CloseWrite()
		}()
		// The server may close with some of it unread.
		if got, err := io.ReadAll(conn); string(got) != c.want {
			t.Errorf("%.10q of %d bytes: got %q, %v, want %q", c.sent, len(c.sent), got, err, c.want)
		}
	}
}

// After a line that is too long, the next one can be read.
func TestSkipLine(t *testing.T) {
	lines := make(chan string, 10)
	f := newFixture(t, Options{Serve: func(_ context.Context, c *Conn) {
		defer close(lines)
		c.SkipLine() // there is nothing to skip
		for {
			line, err := c.ReadLine()
			switch {
			case errors.Is(err, ErrLineTooLong):
				lines <- "too long"
				c.SkipLine()
			case err != nil:
				return
			default:
				lines <- string(line)
			}
		}
	}})
	conn := f.dial()
	for _, n := range []int{MaxLine + 1, MaxLine + 4096, MaxLine + 4097, 3 * MaxLine} {
		if _, err := fmt.Fprintf(conn, "%s\nnext\n", strings.Repeat("x", n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Fprint(conn, strings.Repeat("x", 2*MaxLine)); err != nil {
		t.Fatal(err)
	}
	_ = conn.CloseWrite()
	var got []string
	for line := range lines {
		got = append(got, line)
	}
	want := strings.Fields(strings.Repeat("too-long next ", 4) + "too-long")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "-", " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// When there are too many, the one that has been idle longest goes.
func TestTooManyConnections(t *testing.T) {
	f := newFixture(t, Options{MaxConns: 3, Name: "test", Serve: func(_ context.Context, c *Conn) {
		line, err := c.ReadLine()
		if err != nil || !c.SetIdle(false) {
			return
		}
		fmt.Fprintf(c, "busy with %s\n", line)
		_, _ = c.ReadLine()
		fmt.Fprint(c, "done")
	}})
	var conns []*net.UnixConn
	dial := func() *net.UnixConn {
		conn := f.dial()
		conns = append(conns, conn)
		return conn
	}
	keepBusy := func(conn *net.UnixConn) {
		t.Helper()
		if _, err := io.WriteString(conn, "x\n"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len("busy with x\n"))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "busy with x\n" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	admitted := func(n int) {
		waitFor(t, fmt.Sprint(n, " connections are there"), func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.conns) == n
		})
	}
	keepBusy(dial()) // 0 is the oldest, and busy
	dial()           // 1 is the oldest that is idle
	admitted(2)
	dial()
	admitted(3)
	for i := 3; i < 6; i++ {
		dial()
		if got := readAll(t, conns[i-2]); got != "" { // it was closed for the new one
			t.Errorf("connection %d got %q", i-2, got)
		}
		admitted(3)
	}
	keepBusy(conns[4])
	keepBusy(conns[5])
	// Nobody is idle, so there is no room for another.
	if got := readAll(t, dial()); got != "" {
		t.Errorf("one too many got %q", got)
	}
	for _, i := range []int{0, 4, 5} {
		_, _ = io.WriteString(conns[i], "\n")
		if got := readAll(t, conns[i]); got != "done" {
			t.Errorf("connection %d got %q", i, got)
		}
	}
	admitted(0)
	if got := strings.Count(f.log.String(), "max=3"); got != 1 {
		t.Errorf("logged %d times, want once a minute:\n%s", got, f.log)
	}
}

// The end closes what is idle, and ends the context of what is not.
func TestEnd(t *testing.T) {
	f := newFixture(t, Options{Serve: func(ctx context.Context, c *Conn) {
		line, err := c.ReadLine()
		if !c.SetIdle(false) {
			return
		}
		fmt.Fprintf(c, "%s %v\n", line, err)
		<-ctx.Done()
		fmt.Fprint(c, "bye")
		c.SetIdle(true)
		if _, err := c.ReadLine(); err == nil { // or else it hangs
			t.Error("a line was read after the end")
		}
	}})
	idle, busy := f.dial(), f.dial()
	if _, err := io.WriteString(busy, "x\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("x <nil>\n"))
	if _, err := io.ReadFull(busy, got); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both are there", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.conns) == 2
	})
	f.stop()
	if got := readAll(t, idle); got != "" {
		t.Errorf("the idle one got %q", got)
	}
	if got := readAll(t, busy); got != "bye" {
		t.Errorf("the busy one got %q", got)
	}
	if _, err := net.Dial("unix", f.Path()); err == nil {
		t.Error("the socket is still there")
	}
	if f.admit(nil) != nil {
		t.Error("a connection was admitted after the end")
	}
}

// When no descriptor is left, connections wait until there is one.
func TestAcceptFails(t *testing.T) {
	f := newFixture(t, Options{Serve: echo})
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }()
	conn := f.dial() // served, so that the server waits for the next
	if _, err := io.WriteString(conn, "a\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(`1 "a",`))); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := os.NewFile(uintptr(fd), "next")
	defer next.Close()
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: f.Path()}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "accepting has failed twice", func() bool { return strings.Count(f.log.String(), "cannot accept a connection") >= 2 })
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if _, err := next.WriteString("b"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Shutdown(fd, syscall.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(next); string(got) != `1 "b",0 bytes and EOF` || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// A listener that fails ends Run with an error.
func TestListenerFails(t *testing.T) {
	s, err := Listen(Options{Path: shortDir(t) + "/s", Serve: echo})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: %v, want net.ErrClosed", err)
	}
}

// A peer that does not read does not hold a writer for ever.
func TestWriteTimeout(t *testing.T) {
	ended := make(chan error, 1)
	f := newFixture(t, Options{Serve: func(_ context.Context, c *Conn) {
		c.writeTimeout = time.Millisecond
		_, err := c.Write(make([]byte, 32<<20))
		ended <- err
	}})
	f.dial()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
