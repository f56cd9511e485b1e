package broker

import "sync"

// Arrivals tells those who wait for an inbox that something came.
type Arrivals struct {
	mu      sync.Mutex
	waiting map[string]*waiters
}

// waiters share one channel, which is closed when something arrives.
type waiters struct {
	arrived chan struct{}
	count   int
}

// NewArrivals returns Arrivals for which nobody waits.
func NewArrivals() *Arrivals {
	return &Arrivals{waiting: map[string]*waiters{}}
}

// Notify wakes all who wait for agent's inbox. It does not block.
func (a *Arrivals) Notify(agent string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.waiting[agent]; w != nil {
		close(w.arrived)
		delete(a.waiting, agent)
	}
}

// wait returns a channel that is closed at the next Notify for agent. The
// caller calls stop when it no longer waits.
func (a *Arrivals) wait(agent string) (arrived <-chan struct{}, stop func()) {
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
