package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// slots bound how many events run at a time, and how many wait for that.
type slots struct {
	free       chan struct{}
	waiting    atomic.Int64
	maxWaiting int64
}

var errBusy = errors.New("busy")

func newSlots(n, maxWaiting int) *slots {
	return &slots{free: make(chan struct{}, n), maxWaiting: int64(maxWaiting)}
}

// take waits for a slot, unless too many wait already.
func (s *slots) take(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
		return s.release, nil
	default:
	}
	if s.waiting.Add(1) > s.maxWaiting {
		s.waiting.Add(-1)
		return nil, fmt.Errorf("%w: %d events wait already; fire it again later", errBusy, s.maxWaiting)
	}
	defer s.waiting.Add(-1)
	return s.wait(ctx)
}

// wait waits for a slot however many others do.
func (s *slots) wait(ctx context.Context) (release func(), err error) {
	select {
	case s.free <- struct{}{}:
		return s.release, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *slots) release() { <-s.free }
