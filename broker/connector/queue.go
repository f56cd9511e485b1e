package connector

import "sync"

// arrival is a frame for a handler.
type arrival struct {
	frame Frame
	// refused is why the frame could not be read; its bufferId is known.
	refused *FrameError
	from    *session
	size    int
}

// bufferID is what to acknowledge, if anything.
func (a arrival) bufferID() string {
	if a.refused != nil {
		return a.refused.BufferID
	}
	switch f := a.frame.(type) {
	case Inbound:
		return f.BufferID
	case Passthrough:
		return f.BufferID
	}
	return ""
}

// queue holds what came in and is not handled yet, in order and bounded. It
// outlives connections: what came by one that dropped is still handled.
type queue struct {
	maxFrames, maxBytes int

	mu      sync.Mutex
	waiting []arrival
	bytes   int
	busy    bool          // one that was taken is being handled
	closed  bool          // nothing more comes
	changed chan struct{} // closed and replaced at each change
}

func newQueue(maxFrames, maxBytes int) *queue {
	return &queue{maxFrames: maxFrames, maxBytes: maxBytes, changed: make(chan struct{})}
}

// change applies a change and tells whoever waits.
func (q *queue) change(apply func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	apply()
	close(q.changed)
	q.changed = make(chan struct{})
}

// put waits for room. It reports false when over was closed before there was.
func (q *queue) put(a arrival, over <-chan struct{}) bool {
	for {
		q.mu.Lock()
		free, changed := len(q.waiting) < q.maxFrames && q.bytes < q.maxBytes, q.changed
		q.mu.Unlock()
		if free { // only the session's reader puts, and there is one at a time
			q.change(func() { q.waiting, q.bytes = append(q.waiting, a), q.bytes+a.size })
			return true
		}
		select {
		case <-changed:
		case <-over:
			return false
		}
	}
}

// take waits for the next arrival, which is being handled until done. It
// reports false when the queue is closed and empty, or stop is closed.
func (q *queue) take(stop <-chan struct{}) (a arrival, ok bool) {
	for {
		q.mu.Lock()
		empty, closed, changed := len(q.waiting) == 0, q.closed, q.changed
		q.mu.Unlock()
		switch {
		case !empty:
			q.change(func() {
				a, q.waiting = q.waiting[0], q.waiting[1:]
				q.bytes -= a.size
				q.busy = true
			})
			return a, true
		case closed:
			return arrival{}, false
		}
		select {
		case <-changed:
		case <-stop:
			return arrival{}, false
		}
	}
}

func (q *queue) done() { q.change(func() { q.busy = false }) }

func (q *queue) close() { q.change(func() { q.closed = true }) }

// state returns how much there is to do, whether more may come, and a channel
// that is closed when that changes.
func (q *queue) state() (backlog int, closed bool, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	backlog = len(q.waiting)
	if q.busy {
		backlog++
	}
	return backlog, q.closed, q.changed
}

// rest returns what was left.
func (q *queue) rest() []arrival {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
