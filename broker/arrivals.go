package broker

import (
	"sync"

	"github.com/agent-relay/agent-relay/store"
)

// arrivals tells those who wait for an inbox that something came.
type arrivals struct {
	mu      sync.Mutex
	waiting map[string]*waiters
}

// waiters share one channel, which is closed when something arrives.
type waiters struct {
	arrived chan struct{}
	count   int
}

func newArrivals() *arrivals {
	return &arrivals{waiting: map[string]*waiters{}}
}

// observe wakes all who wait for an inbox that got something to deliver. It
// does not block.
func (a *arrivals) observe(events []store.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range events {
		e := &events[i]
		if w := a.waiting[e.To]; w != nil && e.Arrives() {
			close(w.arrived)
			delete(a.waiting, e.To)
		}
	}
}

// wait returns a channel that is closed at the next arrival for agent. The
// caller calls stop when it no longer waits.
func (a *arrivals) wait(agent string) (arrived <-chan struct{}, stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[agent]
	if w == nil {
		w = &waiters{arrived: make(chan struct{})}
		a.waiting[agent] = w
	}
	w.count++
	return w.arrived, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if w.count--; w.count == 0 && a.waiting[agent] == w {
			delete(a.waiting, agent)
		}
	}
}
