package connector

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const testSecret = "00112233445566778899aabbccddeeff"

// peer is the connector's end of a connection.
type peer struct {
	*websocket.Conn
	ctx    context.Context
	frames FrameReader
	ahead  []string
	token  string
}

// write sends a message as it is.
func (p *peer) write(typ websocket.MessageType, message string) error {
	return p.Write(p.ctx, typ, []byte(message))
}

func (p *peer) say(frames ...string) error {
	for _, frame := range frames {
		if err := p.write(websocket.MessageText, frame+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// hear returns the relay's next frame.
func (p *peer) hear() (string, error) {
	for len(p.ahead) == 0 {
		_, message, err := p.Read(p.ctx)
		if err != nil {
			return "", err
		}
		var bad error
		p.frames.Feed(message, true, func(frame []byte, err error) {
			p.ahead, bad = append(p.ahead, string(frame)), errors.Join(bad, err)
		})
		if bad != nil {
			return "", bad
		}
	}
	next := p.ahead[0]
	p.ahead = p.ahead[1:]
	return next, nil
}

// want checks what the relay says next.
func (p *peer) want(frames ...string) error {
	for _, want := range frames {
		got, err := p.hear()
		if err != nil {
			return err
		}
		if got != want {
			return errors.New("the relay says " + got + ", want " + want)
		}
	}
	return nil
}

// greet makes the handshake.
func (p *peer) greet() error {
	return errors.Join(p.want(helloFrame), p.say(descriptorFrame))
}

// connector serves connections, the nth by serve; when that returns the
// connection ends without a word.
type connector struct {
	url   string
	dials atomic.Int64
}

func startConnector(t *testing.T, serve func(n int, p *peer) error) *connector {
	t.Helper()
	return startConnectorWith(t, websocket.AcceptOptions{}, serve)
}

func startConnectorWith(t *testing.T, o websocket.AcceptOptions, serve func(n int, p *peer) error) *connector {
	t.Helper()
	c := &connector{}
	// Nothing waits longer than the test may take.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/relay" {
			http.NotFound(w, q)
			return
		}
		conn, err := websocket.Accept(w, q, &o)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(-1)
		token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		n := int(c.dials.Add(1))
		if err := serve(n, &peer{Conn: conn, ctx: ctx, token: token}); err != nil {
			t.Errorf("connection %d: %v", n, err)
		}
	}))
	c.url = server.URL
	t.Cleanup(func() { cancel(); server.Close() })
	return c
}

// dialTo makes a dialer as a config does, with a clock that never stands still.
func dialTo(t *testing.T, url string, o WebSocketOptions) *WebSocketDialer {
	t.Helper()
	url, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := NewTokenMinter(testSecret, "gw", DefaultTokenTTL)
	if err != nil {
		t.Fatal(err)
	}
	var ticks atomic.Int64
	return &WebSocketDialer{URL: url, Tokens: tokens, Options: o, Now: func() time.Time {
		return time.Now().Add(time.Duration(ticks.Add(1)) * time.Second)
	}}
}

// runTo runs a transport that dials a connector, and dials again soon. The
// cleanup ends it.
func runTo(t *testing.T, url string, o Options) *running {
	t.Helper()
	if o.Dialer == nil {
		o.Dialer = dialTo(t, url, WebSocketOptions{})
	}
	if o.Reconnect.First == 0 {
		o.Reconnect = ReconnectPolicy{First: time.Millisecond, Max: 5 * time.Millisecond}
	}
	r := run(t, o)
	t.Cleanup(func() {
		r.stop()
		if err := <-r.result; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// within bounds a wait.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition of the status.
func (r *running) until(t *testing.T, what string, holds func(Status) bool) {
	t.Helper()
	ctx := within(t)
	for !holds(r.Status()) {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s; %+v", what, r.Status())
		case <-time.After(time.Millisecond):
		}
	}
}
