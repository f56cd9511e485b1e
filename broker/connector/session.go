package connector

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// errLost and errTimeout are the errors of ambiguous results.
const (
	errLost    = "relay transport connection lost"
	errTimeout = "the connector sent no result in time"
	errGivenUp = "nobody waited for the connector's result"
)

// session is one connection.
type session struct {
	t             *Transport
	io            FrameIO
	authenticated bool
	queue         *queue

	// life ends when the connection is over.
	life context.Context
	end  context.CancelFunc
	// writing is held by whoever writes.
	writing chan struct{}
	// greeted is closed at the first descriptor, idle at the connector's leave,
	// over when everything that arrived was read and nothing more will.
	greeted, idle, over chan struct{}

	mu       sync.Mutex
	pending  map[string]chan Result
	leaving  bool          // going_idle was sent
	quiet    bool          // no more requests
	ended    bool          // pending was settled
	calm     chan struct{} // closed when quiet and nothing is pending
	err      error         // why it is over
	greetAt  time.Time     // when greeted was closed
	dropping bool          // the reader has begun to drop what came in
}

func newSession(t *Transport, conn FrameIO, authenticated bool, q *queue, hard context.Context) *session {
	s := &session{
		t: t, io: conn, authenticated: authenticated, queue: q,
		writing: make(chan struct{}, 1), greeted: make(chan struct{}), idle: make(chan struct{}), over: make(chan struct{}),
		pending: map[string]chan Result{}, calm: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(hard)
	return s
}

// read takes frames until the connection is over.
func (s *session) read() {
	described := map[string]bool{}
	for {
		raw, err := s.io.Receive(s.life)
		if errors.Is(err, ErrBadFrame) {
			s.bad(err)
			continue
		}
		if err != nil {
			s.finish(err)
			return
		}
		frame, err := ParseFrame(raw)
		var refused *FrameError
		switch {
		case err == nil:
			s.take(frame, len(raw), described)
		case errors.As(err, &refused) && refused.BufferID != "" && s.t.handles(refused.Type):
			s.enqueue(arrival{refused: refused, from: s, size: len(raw)})
		default:
			s.bad(err)
		}
	}
}

// handles tells whether frames of a type have a handler.
func (t *Transport) handles(kind string) bool {
	switch kind {
	case "inbound":
		return t.o.Handlers.Inbound != nil
	case "passthrough_forward":
		return t.o.Handlers.Passthrough != nil
	case "interrupt_inbound":
		return t.o.Handlers.Interrupt != nil
	}
	return false
}

// take deals with a frame, or queues it for its handler.
func (s *session) take(frame Frame, size int, described map[string]bool) {
	kind := ""
	switch f := frame.(type) {
	case Describe:
		s.describe(f.Descriptor, described)
		return
	case OutboundResult:
		if s.resolve(f.RequestID, f.Result) {
			return
		}
	case GoingIdleAck:
		if s.leave() {
			return
		}
	case Inbound:
		f.Authenticated = s.authenticated
		frame, kind = f, "inbound"
	case Passthrough:
		f.Authenticated = s.authenticated
		frame, kind = f, "passthrough_forward"
	case InterruptInbound:
		f.Authenticated = s.authenticated
		frame, kind = f, "interrupt_inbound"
	}
	if s.t.handles(kind) {
		s.enqueue(arrival{frame: frame, from: s, size: size})
		return
	}
	s.t.count(func(c *Counters) { c.OtherFrames++ })
}

// enqueue stops the reading while the queue is full. Once the connection is
// over, what does not fit is dropped, so that results behind it are still
// read; a connector sends again what it has not seen acknowledged.
func (s *session) enqueue(a arrival) {
	if !s.dropping && s.queue.put(a, s.io.Done()) {
		return
	}
	s.dropping = true
	s.t.drop([]arrival{a})
}

// drop counts frames that will not be handled, and logs those that nobody
// keeps.
func (t *Transport) drop(rest []arrival) {
	lost := 0
	for _, a := range rest {
		if a.bufferID() == "" {
			lost++
		}
	}
	t.count(func(c *Counters) { c.DroppedAtEnd += uint64(len(rest)) })
	if lost > 0 {
		t.log.Error("events were lost: the connection ended before they could be stored, and the connector keeps no copy of them", "count", lost)
	}
}

func (s *session) describe(d Descriptor, described map[string]bool) {
	if d.ContractVersion > ContractVersion {
		s.t.log.Warn("the connector speaks a newer contract; what is known of it is used", "platform", d.Platform, "version", d.ContractVersion)
	}
	first := len(described) == 0
	described[d.Platform] = true
	s.t.change(func() {
		if first {
			s.t.descriptors = map[string]Descriptor{}
		}
		s.t.descriptors[d.Platform] = d
	})
	if first {
		s.mu.Lock()
		s.greetAt = time.Now()
		s.mu.Unlock()
		close(s.greeted)
	}
}

// bad counts a frame that was skipped, and logs the first of many.
func (s *session) bad(err error) {
	n := uint64(0)
	s.t.count(func(c *Counters) { c.BadFrames++; n = c.BadFrames })
	if bits.OnesCount64(n) == 1 {
		s.t.log.Warn("a frame of the connector was skipped", "error", err, "skipped", n)
	}
}

// finish settles what waits for the connection.
func (s *session) finish(err error) {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.ended = err, true
	for id, result := range s.pending {
		result <- Result{Error: errLost, Ambiguous: true}
		delete(s.pending, id)
	}
	close(s.over)
}

// send writes a frame in turn.
func (s *session) send(ctx context.Context, frame []byte) error {
	release, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.write(frame)
}

// turn waits until this frame may be written. Its error wraps ErrNotSent.
func (s *session) turn(ctx context.Context) (release func(), err error) {
	select {
	case s.writing <- struct{}{}:
	case <-s.life.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ErrOffline)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ctx.Err())
	}
	return func() { <-s.writing }, nil
}

// write writes a frame in the connection's own time: a caller that goes away in
// the middle must not end the connection. What was not sent was so because the
// connection is over.
func (s *session) write(frame []byte) error {
	ctx, cancel := context.WithTimeout(s.life, s.t.o.Limits.Outbound)
	defer cancel()
	err := s.io.Send(ctx, frame)
	if errors.Is(err, ErrNotSent) {
		return fmt.Errorf("%w: %w", ErrOffline, err)
	}
	return err
}

// request writes an outbound frame and waits for its result.
func (s *session) request(ctx context.Context, id string, frame []byte) (Result, error) {
	release, err := s.turn(ctx)
	if err != nil {
		return Result{}, err
	}
	timer := time.NewTimer(s.t.o.Limits.Outbound)
	defer timer.Stop()
	result := s.expect(id)
	if result == nil {
		release()
		return Result{}, ErrOffline
	}
	err = s.write(frame)
	release()
	if errors.Is(err, ErrNotSent) {
		s.forget(id)
		return Result{}, err
	}
	// After any other error the connection is lost, but for what still arrives
	// of it, which may be the result.
	given := ""
	select {
	case r := <-result:
		return r, nil
	case <-timer.C:
		given = errTimeout
	case <-ctx.Done():
		given = errGivenUp
	}
	if s.forget(id) {
		return Result{Error: given, Ambiguous: true}, nil
	}
	return <-result, nil // it came at this moment
}

// expect registers a request, unless there can be no answer.
func (s *session) expect(id string) chan Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.quiet {
		return nil
	}
	result := make(chan Result, 1)
	s.pending[id] = result
	return result
}

// forget reports whether the request was still pending.
func (s *session) forget(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, pending := s.pending[id]
	s.settle(id)
	return pending
}

func (s *session) resolve(id string, r Result) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, pending := s.pending[id]
	if pending {
		result <- r
	}
	s.settle(id)
	return pending
}

// settle ends a request; s.mu is held.
func (s *session) settle(id string) {
	_, pending := s.pending[id]
	delete(s.pending, id)
	if pending && s.quiet && len(s.pending) == 0 {
		close(s.calm)
	}
}

// leave takes the connector's leave, which counts once and when asked for.
func (s *session) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving || s.quiet {
		return false
	}
	s.quiet = true
	close(s.idle)
	if len(s.pending) == 0 {
		close(s.calm)
	}
	return true
}

// ack acknowledges a frame to whom it came from, if that is still there.
func (s *session) ack(bufferID string) {
	if bufferID == "" {
		return
	}
	if err := s.send(s.life, InboundAck{bufferID}.AppendJSON(nil)); err == nil {
		s.t.count(func(c *Counters) { c.Acked++ })
	}
}
