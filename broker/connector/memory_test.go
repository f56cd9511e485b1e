package connector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// memory is a connection that exists in memory alone, so that tests of time
// need not wait for it.
type memory struct {
	toRelay, toPeer chan []byte
	done            chan struct{}
	once            sync.Once
	err             error
	// sendErr is what Send returns, if anything.
	sendErr error
	closed  chan int // the code with which the relay closed
}

func newMemory() *memory {
	return &memory{toRelay: make(chan []byte, 4096), toPeer: make(chan []byte, 4096), done: make(chan struct{}), closed: make(chan int, 1)}
}

func (m *memory) Send(ctx context.Context, frame []byte) error {
	if m.sendErr != nil {
		return m.sendErr
	}
	select {
	case <-m.done:
		return fmt.Errorf("%w: %w", ErrNotSent, m.err)
	default:
	}
	select {
	case m.toPeer <- frame:
		return nil
	case <-m.done:
		return m.err
	case <-ctx.Done():
		m.drop(ctx.Err())
		return ctx.Err()
	}
}

func (m *memory) Receive(ctx context.Context) ([]byte, error) {
	var frame []byte
	select {
	case frame = <-m.toRelay:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.done:
		select {
		case frame = <-m.toRelay:
		default:
			return nil, m.err
		}
	}
	if len(frame) == 0 {
		return nil, errNoFrame
	}
	return frame, nil
}

func (m *memory) Done() <-chan struct{} { return m.done }

func (m *memory) Close(ctx context.Context, code int, _ string) {
	if ctx.Err() == nil {
		m.closed <- code
	}
	m.drop(errors.New("closed by the relay"))
}

// drop ends the connection from the connector's side.
func (m *memory) drop(err error) {
	m.once.Do(func() { m.err = err; close(m.done) })
}

// say sends the relay a frame.
func (m *memory) say(frames ...string) {
	for _, frame := range frames {
		m.toRelay <- []byte(frame)
	}
}

// hear returns the relay's next frame.
func (m *memory) hear(t *testing.T) string {
	t.Helper()
	select {
	case frame := <-m.toPeer:
		return string(frame)
	case <-time.After(time.Hour):
		t.Fatal("the relay says nothing")
		return ""
	}
}

// want checks what the relay says next.
func (m *memory) want(t *testing.T, frames ...string) {
	t.Helper()
	for _, frame := range frames {
		if got := m.hear(t); got != frame {
			t.Fatalf("the relay says %s, want %s", got, frame)
		}
	}
}

// asked returns the next request.
func (m *memory) asked(t *testing.T) Outbound {
	t.Helper()
	raw := m.hear(t)
	frame, err := ParseFrame([]byte(raw))
	request, ok := frame.(Outbound)
	if err != nil || !ok {
		t.Fatalf("the relay says %s", raw)
	}
	return request
}

func (m *memory) answer(request Outbound, r Result) {
	m.say(string(OutboundResult{request.RequestID, r}.AppendJSON(nil)))
}

// silent checks that the relay has said nothing more.
func (m *memory) silent(t *testing.T) {
	t.Helper()
	select {
	case frame := <-m.toPeer:
		t.Errorf("the relay also says %s", frame)
	default:
	}
}

// dialer is a Dialer by a function, and notes when it was used.
type dialer struct {
	dial func(n int) (*memory, error)
	mu   sync.Mutex
	at   []time.Time
}

func (d *dialer) Dial(context.Context) (FrameIO, bool, error) {
	d.mu.Lock()
	d.at = append(d.at, time.Now())
	n := len(d.at)
	d.mu.Unlock()
	conn, err := d.dial(n)
	if err != nil {
		return nil, false, err
	}
	return conn, true, nil
}

const (
	descriptorFrame = `{"type":"descriptor","descriptor":{"contract_version":1,"platform":"chat"}}`
	helloFrame      = `{"type":"hello","platform":"chat","botId":"bot"}`
	idleFrame       = `{"type":"going_idle"}`
)

var bot = Identity{"chat", "bot"}

// running is a transport that runs.
type running struct {
	*Transport
	stop   context.CancelFunc
	result chan error
	phases chan Phase
}

func run(t *testing.T, o Options) *running {
	t.Helper()
	if o.Identities == nil {
		o.Identities = []Identity{bot}
	}
	r := &running{result: make(chan error, 1), phases: make(chan Phase, 4096)}
	o.OnPhase = func(p Phase, _ error) { r.phases <- p }
	var err error
	if r.Transport, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.result <- r.Run(ctx) }()
	return r
}

// online runs a transport with one connection whose handshake is good.
func online(t *testing.T, o Options) (*running, *memory) {
	t.Helper()
	m := newMemory()
	o.Dialer = &dialer{dial: func(n int) (*memory, error) {
		if n > 1 {
			return nil, errors.New("one is enough")
		}
		return m, nil
	}}
	r := run(t, o)
	m.want(t, helloFrame)
	m.say(descriptorFrame)
	if _, err := r.Await(context.Background(), "chat"); err != nil {
		t.Fatal(err)
	}
	return r, m
}

// end stops the transport at once: the connection drops first.
func (r *running) end(t *testing.T, m *memory) {
	t.Helper()
	m.drop(errors.New("dropped"))
	r.stop()
	r.wantEnd(t, nil)
}

func (r *running) wantEnd(t *testing.T, want error) {
	t.Helper()
	if err := <-r.result; !errors.Is(err, want) {
		t.Errorf("Run returned %v, want %v", err, want)
	}
}
