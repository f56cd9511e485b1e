package sqlite

import (
	"sync/atomic"

	"github.com/agent-relay/agent-relay/store"
)

// steadyClock tells two times in Unix milliseconds. Wall time may jump.
// Steady time starts as wall time and goes on with the monotonic clock; the
// writer moves it, together with everything stored that is measured by it,
// when the two have parted by more than store.ClockTolerance. So leases and
// erasure follow monotonic time, and yet what is stored stays close to the
// wall clock, which is all that survives a restart.
type steadyClock struct {
	clock store.Clock
	// base is steady time minus monotonic time.
	base atomic.Int64
	// opened is the steady time at which the store was opened.
	opened atomic.Int64
}

func newSteadyClock(c store.Clock) *steadyClock {
	s := &steadyClock{clock: c}
	now := s.wall()
	s.base.Store(now - s.monotonic())
	s.opened.Store(now)
	return s
}

func (s *steadyClock) wall() int64      { return s.clock.Now().UnixMilli() }
func (s *steadyClock) monotonic() int64 { return millis(s.clock.Elapsed()) }
func (s *steadyClock) steady() int64    { return s.base.Load() + s.monotonic() }

// jump is how far steady time is to be moved, 0 while it is close to the wall.
func (s *steadyClock) jump() int64 {
	d := s.wall() - s.steady()
	if -millis(store.ClockTolerance) <= d && d <= millis(store.ClockTolerance) {
		return 0
	}
	return d
}

// move shifts steady time.
func (s *steadyClock) move(by int64) {
	s.base.Add(by)
	s.opened.Add(by)
}

// now reads both clocks.
func (s *steadyClock) now() instant {
	return instant{wall: s.wall(), steady: s.steady(), opened: s.opened.Load()}
}

// instant is one reading of the clocks.
type instant struct {
	wall, steady, opened int64
}

// leaseFloor is the earliest lease end that counts as over: leases that ran
// out before the store was opened live on for store.LeaseGrace.
func (i instant) leaseFloor() int64 {
	if i.steady < i.opened+millis(store.LeaseGrace) {
		return i.opened
	}
	return 0
}

// reached is the time that both clocks have reached. They part by up to
// store.ClockTolerance before they are brought together again.
func (i instant) reached() int64 { return min(i.wall, i.steady) }
