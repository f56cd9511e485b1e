package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSecret = "00112233445566778899aabbccddeeff"
	described  = `{"type":"descriptor","descriptor":{"contract_version":1,"platform":"telegram","max_message_length":20,"supported_ops":["send","typing","edit","get_chat_info"]}}`
)

var telegram = connector.Identity{Platform: "telegram", BotID: "1"}

// faulty is a store whose calls fail as the test says.
type faulty struct {
	store.Store
	mu    sync.Mutex
	fault map[string]error
	calls map[string]int
}

// fail has a call fail from now on; nil mends it.
func (f *faulty) fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault[call] = err
}

func (f *faulty) enter(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	return f.fault[call]
}

// failures waits until a call was made so often.
func (f *faulty) until(t *testing.T, call string, n int) {
	t.Helper()
	waitFor(t, call+" is called", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.calls[call] >= n
	})
}

func (f *faulty) Enqueue(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	if err := f.enter("Enqueue"); err != nil {
		return store.Enqueued{}, err
	}
	return f.Store.Enqueue(ctx, m)
}

func (f *faulty) Acknowledge(ctx context.Context, a store.Acknowledgement) (string, error) {
	if err := f.enter("Acknowledge"); err != nil {
		return "", err
	}
	return f.Store.Acknowledge(ctx, a)
}

func (f *faulty) Renew(ctx context.Context, r store.Renewal) (time.Time, error) {
	if err := f.enter("Renew"); err != nil {
		return time.Time{}, err
	}
	return f.Store.Renew(ctx, r)
}

func (f *faulty) Release(ctx context.Context, agent string, leased []store.Leased) error {
	if err := f.enter("Release"); err != nil {
		return err
	}
	return f.Store.Release(ctx, agent, leased)
}

func (f *faulty) Messages(ctx context.Context, agent string, ids []string) (map[string]agentrelay.Message, error) {
	if err := f.enter("Messages"); err != nil {
		return nil, err
	}
	return f.Store.Messages(ctx, agent, ids)
}

// fixture is a broker whose agents ann and ben talk with connectors.
type fixture struct {
	*testing.T
	broker *broker.Broker
	store  *faulty
	dir    string
	close  func()
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, dir: t.TempDir()}
	f.open(nil)
	t.Cleanup(func() { f.close() })
	for _, agent := range []string{"ann", "ben"} {
		if _, err := f.broker.Register(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// open opens the broker over the fixture's directory.
func (f *fixture) open(boundaries *broker.Boundaries) {
	f.Helper()
	hub := broker.NewHub()
	opened, err := sqlite.Open(context.Background(), sqlite.Options{Dir: f.dir, Options: store.Options{Observe: hub.Observe}})
	if err != nil {
		f.Fatal(err)
	}
	f.store = &faulty{Store: opened, fault: map[string]error{}, calls: map[string]int{}}
	f.broker, err = broker.Open(context.Background(), broker.Options{
		Store: f.store, Hub: hub, Boundaries: boundaries, Heartbeat: time.Minute, TTL: time.Hour,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.broker.Run(ctx) }()
	f.close = sync.OnceFunc(func() {
		stop()
		if err := errors.Join(<-ended, opened.Close()); err != nil {
			f.Error(err)
		}
	})
}

// bridge opens a bridge to one connector, without running it.
func (f *fixture) bridge(c Connector) *Bridge {
	f.Helper()
	return f.bridgeWith(c, connector.Limits{})
}

func (f *fixture) bridgeWith(c Connector, limits connector.Limits) *Bridge {
	f.Helper()
	limits.RetryFirst, limits.RetryMax, limits.Idle = time.Millisecond, 5*time.Millisecond, 200*time.Millisecond
	if c.Identities == nil {
		c.Identities = []connector.Identity{telegram}
	}
	b, err := Open(f.Context(), Options{
		Broker: f.broker, Connectors: []Connector{c}, MaxBodyBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Limits: limits, Reconnect: connector.ReconnectPolicy{First: time.Millisecond, Max: 5 * time.Millisecond},
	})
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// run runs a bridge until stop is called, or the test ends.
func (f *fixture) run(b *Bridge) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	f.Cleanup(stop)
	return stop
}

// start runs a bridge to a connector named chat whose events go to ben.
func (f *fixture) start(p *platform) (b *Bridge, stop func()) {
	f.Helper()
	b = f.bridge(Connector{Name: "chat", Dialer: p.dialer(f.T), DeliverTo: "ben"})
	return b, f.run(b)
}

// send sends from ann to chat.
func (f *fixture) send(id, body string) { f.sendReply(id, "", body) }

func (f *fixture) sendReply(id, replyTo, body string) {
	f.Helper()
	if _, err := f.broker.Send(f.Context(), agentrelay.Message{
		ID: id, From: "ann", To: "chat", ReplyTo: replyTo, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Body: []byte(body),
	}); err != nil {
		f.Fatal(err)
	}
}

// inbox waits until an agent has n messages, and returns them.
func (f *fixture) inbox(agent string, n int) []agentrelay.Message {
	f.Helper()
	var page store.Page
	waitFor(f.T, agent+" has enough messages", func() bool {
		var err error
		page, err = f.broker.Poll(f.Context(), store.PollQuery{Agent: agent, Limit: 5000, MaxBytes: 1 << 30}, 0)
		if err != nil {
			f.Fatal(err)
		}
		return len(page.Messages) >= n
	})
	if len(page.Messages) != n {
		f.Fatalf("%s has %d messages, want %d: %+v", agent, len(page.Messages), n, page.Messages)
	}
	return page.Messages
}

// receipt waits for ann's receipt of a message, the nth that she gets, and
// holds it against its body.
func (f *fixture) receipt(n int, id, body string) {
	f.Helper()
	m := f.inbox("ann", n)[n-1]
	if m.Type != agentrelay.TypeAck || m.From != "chat" || m.ReplyTo != id || string(m.Body) != body {
		f.Errorf("ann gets %s from %s about %s: %s; want %s about %s", m.Type, m.From, m.ReplyTo, m.Body, body, id)
	}
}

func (f *fixture) online() bool {
	for _, p := range f.broker.Peers() {
		if p.Agent == "chat" {
			return p.Online
		}
	}
	f.Fatal("chat is no peer")
	return false
}

// waitFor waits for a condition.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// platform is a connector: a WebSocket server that a test directs.
type platform struct {
	url string
	// conns are the connections whose handshake was good.
	conns chan *conn
}

// conn is one connection, from the connector's end.
type conn struct {
	t   *testing.T
	io  connector.FrameIO
	ctx context.Context
}

// newPlatform serves connections. Each greets with descriptors, and then is the
// test's until it cuts it.
func newPlatform(t *testing.T, descriptors ...string) *platform {
	t.Helper()
	p := &platform{conns: make(chan *conn)}
	if len(descriptors) == 0 {
		descriptors = []string{described}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, err := connector.VerifyToken(token, []string{testSecret}, time.Now()); err != nil {
			_ = ws.Close(connector.CloseUnauthorized, err.Error())
			return
		}
		c := &conn{t: t, io: connector.NewWebSocket(ws, connector.WebSocketOptions{}), ctx: ctx}
		defer c.io.Close(ctx, connector.CloseNormal, "")
		for _, d := range descriptors {
			if c.io.Send(ctx, []byte(d)) != nil {
				return
			}
		}
		select {
		case p.conns <- c:
		case <-ctx.Done():
			return
		case <-c.io.Done():
			return
		}
		select {
		case <-c.io.Done():
		case <-ctx.Done():
		}
	}))
	p.url = server.URL
	t.Cleanup(func() { cancel(); server.Close() })
	return p
}

func (p *platform) dialer(t *testing.T) connector.Dialer {
	t.Helper()
	url, err := connector.ParseURL(p.url)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := connector.NewTokenMinter(testSecret, "gw", connector.DefaultTokenTTL)
	if err != nil {
		t.Fatal(err)
	}
	return &connector.WebSocketDialer{URL: url, Tokens: tokens}
}

// next is the next connection.
func (p *platform) next(t *testing.T) *conn {
	t.Helper()
	select {
	case c := <-p.conns:
		return c
	case <-time.After(time.Minute):
		t.Fatal("nobody dials")
		return nil
	}
}

// hear returns the relay's next frame that is not a greeting.
func (c *conn) hear() connector.Frame {
	c.t.Helper()
	for {
		raw, err := c.io.Receive(c.ctx)
		if err != nil {
			return nil
		}
		frame, err := connector.ParseFrame(raw)
		if err != nil {
			c.t.Errorf("the relay says %s: %v", raw, err)
		}
		if _, greets := frame.(connector.Hello); !greets {
			return frame
		}
	}
}

// outbound is the next action that is asked for.
func (c *conn) outbound() connector.Outbound {
	c.t.Helper()
	f, ok := c.hear().(connector.Outbound)
	if !ok {
		c.t.Fatalf("the relay says %#v, want an action", f)
	}
	return f
}

// wantAck expects the acknowledgement of a buffered frame.
func (c *conn) wantAck(bufferID string) {
	c.t.Helper()
	if f := c.hear(); f != (connector.InboundAck{BufferID: bufferID}) {
		c.t.Errorf("the relay says %#v, want the ack of %s", f, bufferID)
	}
}

func (c *conn) say(raw string) {
	c.t.Helper()
	if err := c.io.Send(c.ctx, []byte(raw)); err != nil {
		c.t.Errorf("say %s: %v", raw, err)
	}
}

// answer answers an action with a result.
func (c *conn) answer(o connector.Outbound, result string) {
	c.t.Helper()
	id, err := json.Marshal(o.RequestID)
	if err != nil {
		c.t.Fatal(err)
	}
	c.say(`{"type":"outbound_result","requestId":` + string(id) + `,"result":` + result + `}`)
}

// cut ends the connection without a word.
func (c *conn) cut() {
	done, cancel := context.WithCancel(c.ctx)
	cancel()
	c.io.Close(done, connector.CloseNormal, "")
}
