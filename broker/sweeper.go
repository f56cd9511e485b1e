package broker

import (
	"context"
	"sync"
	"time"
)

// sweepRetry is when a sweep that failed is tried again.
const sweepRetry = time.Second

// sweeper knows when the store is to be swept next.
type sweeper struct {
	mu      sync.Mutex
	planned time.Time
	nudge   chan struct{}
}

func newSweeper() *sweeper { return &sweeper{nudge: make(chan struct{}, 1)} }

// within asks for a sweep at the latest after d.
func (s *sweeper) within(d time.Duration) {
	at := time.Now().Add(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.planned.IsZero() && !at.Before(s.planned) {
		return
	}
	s.planned = at
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// begin forgets the plan: what is asked for from now on may not be seen by
// the sweep that begins.
func (s *sweeper) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = time.Time{}
}

// until returns how long to wait until the plan.
func (s *sweeper) until() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.planned)
}

// sweep sweeps the store whenever something is due.
func (b *Broker) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		b.sweeper.begin()
		next, err := b.sweepOnce(ctx)
		if err != nil {
			b.background("sweep", err)
			next = sweepRetry
		}
		b.sweeper.within(next)
		b.sleep(ctx)
	}
}

func (b *Broker) sweepOnce(ctx context.Context) (time.Duration, error) {
	b.singleUse.tidy(b.options.Clock.Now())
	ctx, cancel := detach(ctx)
	defer cancel()
	return b.store.Sweep(ctx)
}

// sleep waits for the time of the next sweep.
func (b *Broker) sleep(ctx context.Context) {
	for {
		left := b.sweeper.until()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
			return
		case <-b.sweeper.nudge:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
