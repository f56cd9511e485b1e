package connector

import (
	"context"
	"math/bits"
	"time"
)

// work gives what came in to the handlers, until the queue is closed and
// empty, or hard ends.
func (t *Transport) work(hard context.Context, q *queue) {
	for {
		a, ok := q.take(hard.Done())
		if !ok {
			return
		}
		done := t.handle(hard, q, a)
		q.done()
		if !done {
			t.drop([]arrival{a})
			return
		}
	}
}

// handle has a frame handled, again until that succeeds or will never. It
// reports false when it had to give up.
func (t *Transport) handle(hard context.Context, q *queue, a arrival) bool {
	pause := t.o.Limits.RetryFirst
	for tries := uint(1); ; tries++ {
		err := t.call(hard, a)
		switch {
		case err == nil:
			t.count(func(c *Counters) { c.Handled++ })
		case IsPermanent(err):
			t.count(func(c *Counters) { c.SetAside++ })
			t.log.Error("a frame of the connector was set aside; it can never be stored", "buffer", a.bufferID(), "error", err)
		default:
			t.change(func() { t.stalled = err })
			if bits.OnesCount(tries) == 1 {
				t.log.Warn("a frame of the connector cannot be stored right now; it is tried again, and nothing is taken before it", "buffer", a.bufferID(), "error", err, "tries", tries)
			}
			if !rest(hard, q, pause) {
				return false
			}
			pause = min(2*pause, t.o.Limits.RetryMax)
			continue
		}
		if tries > 1 {
			t.change(func() { t.stalled = nil })
		}
		a.from.ack(a.bufferID())
		return true
	}
}

func (t *Transport) call(ctx context.Context, a arrival) error {
	if a.refused != nil {
		return Permanent(a.refused)
	}
	switch f := a.frame.(type) {
	case Inbound:
		return t.o.Handlers.Inbound(ctx, f)
	case Passthrough:
		return t.o.Handlers.Passthrough(ctx, f)
	default:
		return t.o.Handlers.Interrupt(ctx, f.(InterruptInbound))
	}
}

// rest pauses between two tries. It reports false when there is to be no
// other: hard has ended, or there is nobody left to wait for.
func rest(hard context.Context, q *queue, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		_, closed, changed := q.state()
		if closed {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-hard.Done():
			return false
		case <-changed:
		}
	}
}
