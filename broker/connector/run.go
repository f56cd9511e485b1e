package connector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Run keeps the connection until ctx ends, which is no error, or until the
// connector refuses for good: ErrRefused. When ctx ends it takes leave of the
// connector: it goes on serving until the connector agrees, what was asked is
// answered and what came in is handled, but no longer than Limits.Idle. When it
// returns no goroutine of it is left, no handler runs, and it may be called
// again.
func (t *Transport) Run(ctx context.Context) error {
	if !t.running.CompareAndSwap(false, true) {
		return errors.New("the connector's transport already runs")
	}
	defer t.running.Store(false)
	// hard ends everything at once.
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(t.o.Limits.Idle, cut) })
	defer unhook()

	q := newQueue(t.o.Limits.QueueFrames, t.o.Limits.QueueBytes)
	t.change(func() { t.queue = q })
	var worker sync.WaitGroup
	worker.Go(func() { t.work(hard, q) })
	err := t.connect(ctx, hard, q)
	if err != nil {
		defer time.AfterFunc(t.o.Limits.Idle, cut).Stop()
	}
	q.close()
	worker.Wait()
	if rest := q.rest(); len(rest) > 0 {
		t.drop(rest)
	}
	t.change(func() { t.queue, t.stalled = nil, nil })
	if err != nil {
		t.enter(Refused, nil, err)
		return err
	}
	t.enter(Stopped, nil, nil)
	return nil
}

// connect dials again and again.
func (t *Transport) connect(ctx, hard context.Context, q *queue) error {
	next := reconnector{policy: t.o.Reconnect}
	for ctx.Err() == nil {
		t.enter(Dialling, nil, nil)
		e := t.serve(ctx, hard, q)
		if ctx.Err() != nil {
			return nil
		}
		pause, final := next.after(e)
		if final {
			t.log.Error("the connector refuses this relay for good", "error", e.err)
			return fmt.Errorf("%w: %w", ErrRefused, e.err)
		}
		t.log.Warn("the connection to the connector ended", "error", e.err, "handshake", e.greeted, "again", pause)
		t.enter(Waiting, nil, e.err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// serve makes one connection and stays with it to its end.
func (t *Transport) serve(ctx, hard context.Context, q *queue) (e ending) {
	handshake, stop := context.WithTimeout(ctx, t.o.Limits.Handshake)
	defer stop()
	conn, authenticated, err := t.o.Dialer.Dial(handshake)
	if err != nil {
		return ending{err: err}
	}
	s := newSession(t, conn, authenticated, q, hard)
	var parts sync.WaitGroup
	parts.Go(s.read)
	// What ended a connection is what the peer said, or else this end's reason.
	reason := t.greet(handshake, s)
	if reason == nil {
		t.count(func(c *Counters) { c.Connections++ })
		t.log.Info("the connector is online")
		t.enter(Online, s, nil)
		s.stay(ctx, hard)
	}
	t.hide()
	s.close(ctx, hard)
	parts.Wait()
	return s.ending(reason)
}

// hide keeps new requests from a session that is ending.
func (t *Transport) hide() { t.change(func() { t.session = nil }) }

// greet announces the identities and waits for the first descriptor.
func (t *Transport) greet(ctx context.Context, s *session) error {
	for _, id := range t.o.Identities {
		if s.io.Send(ctx, Hello(id).AppendJSON(nil)) != nil {
			break // the connection is over, or the time is
		}
	}
	select {
	case <-s.greeted:
		return nil
	case <-s.over:
	case <-ctx.Done():
		return ErrNoDescriptor
	}
	select {
	case <-s.greeted: // it was a descriptor and the end at once
		return nil
	default:
		return s.err
	}
}

// stay waits for the end of a good connection, and takes leave when ctx ends.
func (s *session) stay(ctx, hard context.Context) {
	select {
	case <-s.over:
		return
	case <-ctx.Done():
	}
	s.t.enter(Draining, s, nil)
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	if s.send(hard, GoingIdle{}.AppendJSON(nil)) != nil {
		return
	}
	for _, settled := range []<-chan struct{}{s.idle, s.calm} {
		select {
		case <-settled:
		case <-s.over:
			return
		case <-hard.Done():
			return
		}
	}
	// What came in before the leave is acknowledged while that is possible.
	for {
		backlog, _, changed := s.queue.state()
		if backlog == 0 {
			return
		}
		select {
		case <-changed:
		case <-s.over:
			return
		case <-hard.Done():
			return
		}
	}
}

// closeTimeout bounds how long the peer is waited for at the close.
const closeTimeout = 5 * time.Second

// close closes the connection: politely when this end wants it, at once when
// it is over anyway.
func (s *session) close(ctx, hard context.Context) {
	polite, cancel := context.WithTimeout(hard, closeTimeout)
	defer cancel()
	if ctx.Err() == nil {
		cancel()
	}
	s.io.Close(polite, CloseGoingAway, "going idle")
}

// ending says how the session ended; the reader has returned.
func (s *session) ending(reason error) ending {
	var closed *CloseError
	if reason == nil || errors.As(s.err, &closed) {
		reason = s.err
	}
	select {
	case <-s.greeted:
		return ending{greeted: true, lasted: time.Since(s.greetAt), err: reason}
	default:
		return ending{err: reason}
	}
}
