package connector

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits are the times and sizes of a Transport. Zero values mean the defaults.
type Limits struct {
	// Handshake is how long dialling and waiting for the first descriptor may
	// take together, by default 30 s.
	Handshake time.Duration
	// Outbound is how long an action may take from being written to its
	// result, by default 30 s. It bounds the writing of every frame, too.
	Outbound time.Duration
	// Idle is how long Run goes on at most after its context ended, to take
	// leave and to handle what came in. By default 10 s.
	Idle time.Duration
	// QueueFrames and QueueBytes bound what came in and is not handled yet, by
	// default 1024 frames and 4 MiB. One frame more is always taken.
	QueueFrames, QueueBytes int
	// RetryFirst is the pause before a handler is given a frame again. It
	// doubles up to RetryMax. By default 100 ms and 5 s.
	RetryFirst, RetryMax time.Duration
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&l.Handshake, 30 * time.Second},
		{&l.Outbound, 30 * time.Second},
		{&l.Idle, 10 * time.Second},
		{&l.RetryFirst, 100 * time.Millisecond},
		{&l.RetryMax, 5 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if l.QueueFrames <= 0 {
		l.QueueFrames = 1024
	}
	if l.QueueBytes <= 0 {
		l.QueueBytes = 4 << 20
	}
	return l
}

// Handlers take what comes in. They are called one at a time, in the order of
// the frames, by a goroutine of their own; frames of a type that has no handler
// are dropped and not acknowledged.
//
// A handler returns nil when the frame is stored durably, and only then is it
// acknowledged. An error marked by Permanent sets it aside and acknowledges it.
// Any other error is taken to pass: the same frame is handed over again, and
// nothing else before it. A frame may come again after a reconnect, so storing
// has to be idempotent.
//
// The context outlasts Run's by Limits.Idle. A handler may call Send.
type Handlers struct {
	Inbound     func(context.Context, Inbound) error
	Passthrough func(context.Context, Passthrough) error
	Interrupt   func(context.Context, InterruptInbound) error
}

// Options are what a Transport needs.
type Options struct {
	Dialer Dialer
	// Identities are announced to the connector, in this order.
	Identities []Identity
	Handlers   Handlers
	Reconnect  ReconnectPolicy
	Limits     Limits
	// OnPhase is told of each new phase, in order, and with the error that led
	// to it, if any. It must not block. Optional.
	OnPhase func(Phase, error)
	// Log is for ids and events. Optional.
	Log *slog.Logger
}

// Phase is where a Transport stands.
type Phase string

// The phases. Online begins with the first descriptor of a connection; Send
// works in it and in Draining.
const (
	Stopped  Phase = "stopped"  // Run does not run
	Dialling Phase = "dialling" // dialling, or waiting for the first descriptor
	Online   Phase = "online"   // the handshake is good
	Draining Phase = "draining" // taking leave
	Waiting  Phase = "waiting"  // for the time of the next dial
	Refused  Phase = "refused"  // Run returned ErrRefused
)

// Status is a Transport at one moment.
type Status struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Err is why the last connection ended, or could not be made; nil once a
	// handshake was good.
	Err error
	// Descriptors are the last known, sorted by platform.
	Descriptors []Descriptor
	// Backlog is how many frames wait for their handler or are with it.
	Backlog int
	// Stalled is the passing error that the handler last returned for the
	// frame that it is given again and again.
	Stalled error
	Counters
}

// Counters count since the Transport was made.
type Counters struct {
	Connections  uint64 // handshakes that were good
	Handled      uint64 // frames that a handler took
	Acked        uint64 // acknowledgements written
	SetAside     uint64 // frames that can never be handled
	BadFrames    uint64 // skipped because they could not be read
	OtherFrames  uint64 // ignored: of an unknown type, late, or without handler
	DroppedAtEnd uint64 // came in, and were not handled before the end
}

// Transport is the relay's end of the connection to one connector. Its methods
// may be called at once from anywhere.
type Transport struct {
	o   Options
	log *slog.Logger

	running atomic.Bool
	// prefix and requests make request ids that no other run makes.
	prefix   string
	requests atomic.Uint64

	mu          sync.Mutex
	phase       Phase
	since       time.Time
	err         error
	session     *session // whose handshake was good
	descriptors map[string]Descriptor
	stalled     error
	counters    Counters
	queue       *queue
	changed     chan struct{} // closed and replaced with each change of these
}

// New makes a Transport. It refuses options without a dialer, without an
// identity or with one twice.
func New(o Options) (*Transport, error) {
	if o.Dialer == nil {
		return nil, errors.New("the connector has no dialer")
	}
	if len(o.Identities) == 0 {
		return nil, errors.New("the connector has no identity")
	}
	for i, id := range o.Identities {
		if id.Platform == "" {
			return nil, fmt.Errorf("identity %d of the connector names no platform", i+1)
		}
		if slices.Contains(o.Identities[:i], id) {
			return nil, fmt.Errorf("the connector has the identity %s %s twice", id.Platform, id.BotID)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Reconnect, o.Limits = o.Reconnect.withDefaults(), o.Limits.withDefaults()
	return &Transport{
		o: o, log: o.Log, prefix: rand.Text()[:12], phase: Stopped, since: time.Now(),
		descriptors: map[string]Descriptor{}, changed: make(chan struct{}),
	}, nil
}

// change applies a change under the lock and tells whoever waits for one.
func (t *Transport) change(apply func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	apply()
	close(t.changed)
	t.changed = make(chan struct{})
}

// enter begins a phase. Only Run's goroutine does.
func (t *Transport) enter(p Phase, s *session, err error) {
	t.change(func() {
		t.phase, t.since, t.session = p, time.Now(), s
		if err != nil || p == Online {
			t.err = err
		}
	})
	if t.o.OnPhase != nil {
		t.o.OnPhase(p, err)
	}
}

func (t *Transport) count(add func(*Counters)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add(&t.counters)
}

// Status returns how the transport stands.
func (t *Transport) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Phase: t.phase, Since: t.since, Err: t.err, Stalled: t.stalled, Counters: t.counters}
	for _, d := range t.descriptors {
		s.Descriptors = append(s.Descriptors, d)
	}
	slices.SortFunc(s.Descriptors, func(a, b Descriptor) int {
		if a.Platform < b.Platform {
			return -1
		}
		return 1
	})
	if t.queue != nil {
		s.Backlog, _, _ = t.queue.state()
	}
	return s
}

// Await waits until the connector is online and has described a platform, and
// returns the description. It fails when ctx ends only.
func (t *Transport) Await(ctx context.Context, platform string) (Descriptor, error) {
	for {
		t.mu.Lock()
		d, ok := t.descriptors[platform]
		ok, changed := ok && t.session != nil, t.changed
		t.mu.Unlock()
		if ok {
			return d, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Descriptor{}, ctx.Err()
		}
	}
}

// Send has the connector carry out an action in the name of an identity, and
// waits for the result.
//
// An error means that not a byte of it was sent, so that it may be given to
// Send again: ErrOffline, ErrUnknownIdentity, ErrFrameTooLarge, what Validate
// finds, or ctx ended before. Once it may have been sent there is a result, and
// no error: the connector's, or one that is Ambiguous because the connection
// dropped, the time for outbound actions was over, or ctx ended.
func (t *Transport) Send(ctx context.Context, a Action, id Identity) (Result, error) {
	if err := a.Validate(); err != nil {
		return Result{}, err
	}
	if !slices.Contains(t.o.Identities, id) {
		return Result{}, ErrUnknownIdentity
	}
	request := fmt.Sprintf("%s-%d", t.prefix, t.requests.Add(1))
	frame := Outbound{RequestID: request, Action: a, Identity: id}.AppendJSON(nil)
	if len(frame)+1 > MaxFrame {
		return Result{}, ErrFrameTooLarge
	}
	s := t.current()
	if s == nil {
		return Result{}, ErrOffline
	}
	return s.request(ctx, request, frame)
}

// Interrupt asks the connector to break off what it does for a session. After
// an error that does not wrap ErrNotSent it may have been asked.
func (t *Transport) Interrupt(ctx context.Context, sessionKey, reason string) error {
	s := t.current()
	if s == nil {
		return fmt.Errorf("%w: %w", ErrNotSent, ErrOffline)
	}
	return s.send(ctx, Interrupt{sessionKey, reason}.AppendJSON(nil))
}

func (t *Transport) current() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}
