package storetest

import (
	"sync"
	"time"
)

// Clock is a store.Clock that moves only when told to. It may be used by
// several goroutines at once.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	elapsed time.Duration
}

// NewClock returns a clock whose wall shows now, at an arbitrary monotonic
// time.
func NewClock(now time.Time) *Clock {
	return &Clock{now: now, elapsed: 12345 * time.Second}
}

// Now is the wall's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Elapsed is monotonic time.
func (c *Clock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Advance lets time pass: both the wall and monotonic time move by d, which
// is not negative.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		panic("storetest: time cannot pass backwards; use Jump to set the wall back")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.elapsed += d
}

// Jump sets the wall forward by d, or back, without any time passing.
func (c *Clock) Jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
