//go:build !windows

package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/client"
)

// listenOnce serves one connection at a socket as a test says.
func listenOnce(t *testing.T, serve func(*net.UnixConn, *bufio.Reader)) (path string) {
	t.Helper()
	path = socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn, bufio.NewReader(conn))
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

const helloReply = `{"kind":"reply","id":1,"result":{"type":"hello","data":{"version":1,"daemon_version":"x"}}}` + "\n"

// What answers may be something else, or go away.
func TestControlDial(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   error
		text   string
	}{
		"closed at once":  {"", client.ErrUnreachable, "closed the connection"},
		"no JSON":         {"HTTP/1.1 400 Bad Request\r\n", client.ErrNotRelay, "it is no control socket"},
		"the hook socket": {`{"ok":false,"errors":[]}` + "\n", client.ErrNotRelay, "it is no control socket"},
		"another version": {
			`{"kind":"reply","id":1,"error":"the app speaks protocol 1, this daemon 2; update the older one"}` + "\n",
			nil, "the app speaks protocol 1, this daemon 2; update the older one",
		},
		"another result":  {`{"kind":"reply","id":1,"result":{"type":"ok"}}` + "\n", client.ErrNotRelay, "it is no control socket"},
		"no result":       {`{"kind":"reply","id":1}` + "\n", client.ErrNotRelay, "it is no control socket"},
		"other data":      {`{"kind":"reply","id":1,"result":{"type":"hello","data":[]}}` + "\n", client.ErrNotRelay, "it is no control socket"},
		"a farewell":      {`{"kind":"reply","id":null,"error":"too much"}` + "\n", client.ErrUnreachable, "too much"},
		"something newer": {`{"kind":"news"}` + "\n" + helloReply, nil, ""},
	} {
		path := listenOnce(t, func(conn *net.UnixConn, r *bufio.Reader) {
			_, _ = r.ReadString('\n')
			_, _ = conn.Write([]byte(test.answer))
		})
		c, err := client.DialControl(t.Context(), path)
		if err == nil {
			if test.text != "" {
				t.Errorf("%s: no error", name)
			}
			_ = c.Close()
			continue
		}
		if test.want != nil && !errors.Is(err, test.want) || test.text == "" || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.DialControl(t.Context(), socketPath(t)); !errors.Is(err, client.ErrUnreachable) ||
		!strings.Contains(err.Error(), "no broker answers at the control socket") {
		t.Errorf("with no socket: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	path := listenOnce(t, func(_ *net.UnixConn, r *bufio.Reader) {
		_, _ = r.ReadString('\n')
		cancel()
		_, _ = r.ReadString('\n')
	})
	if _, err := client.DialControl(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while it waits: %v", err)
	}
	if _, err := client.DialControl(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// A call that cannot be written ends with its context, and breaks the
// connection.
func TestControlUnwritable(t *testing.T) {
	end := make(chan bool)
	path := listenOnce(t, func(conn *net.UnixConn, r *bufio.Reader) {
		_, _ = r.ReadString('\n')
		_, _ = conn.Write([]byte(helloReply))
		<-end
	})
	defer close(end)
	c := dialControl(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error)
	go func() {
		_, err := c.Send(ctx, "alpha", client.Outgoing{To: "beta", Body: json.RawMessage(`"` + strings.Repeat("x", 8<<20) + `"`)})
		sent <- err
	}()
	waiting := make(chan error)
	go func() {
		_, err := c.Stats(t.Context())
		waiting <- err
	}()
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// If the other one was written first, nobody answers it until the end.
	_ = c.Close()
	if err := <-waiting; !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("the other one: %v", err)
	}
	if _, err := c.Stats(t.Context()); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a third one: %v", err)
	}
}
