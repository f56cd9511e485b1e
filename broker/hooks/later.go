package hooks

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

const (
	// maxQueuedBytes bounds the payloads that FireLater keeps.
	maxQueuedBytes = 32 << 20
	// dropLogInterval is how often at most the log is told of drops.
	dropLogInterval = time.Minute
)

// FireLater queues an event, for Run to fire it in its turn, and does not
// wait. It reports false if the event was dropped because too much is queued.
// Where nothing is installed there is nothing to queue. What came of the
// event goes to the log and Options.Done. The payload is not copied.
func (d *Dispatcher) FireLater(kind hook.Kind, payload json.RawMessage) bool {
	if !d.Installed(kind) {
		return true
	}
	ended := d.life.Err() != nil
	if !ended && d.queue.push(event{kind, payload}) {
		return true
	}
	d.counters.dropped.Add(1)
	if ended {
		return false
	}
	if n := d.queue.drops.note(time.Now()); n > 0 {
		d.o.Log.Warn("too many hooks wait; events were dropped", "dropped", n, "hook", kind)
	}
	return false
}

// work fires queued events until the dispatcher stops.
func (d *Dispatcher) work() {
	for {
		e, ok := d.queue.pop(d.life.Done())
		if !ok {
			return
		}
		// The queue bounds how many wait, so no more needs to.
		d.fire(d.life, d.ordinary.wait, e.kind, e.payload)
	}
}

type event struct {
	kind    hook.Kind
	payload json.RawMessage
}

// queue keeps events in order, up to a number and a size.
type queue struct {
	events chan event
	drops  drops

	mu    sync.Mutex
	bytes int
}

func newQueue(n int) *queue { return &queue{events: make(chan event, n)} }

func (q *queue) push(e event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+len(e.payload) > maxQueuedBytes {
		return false
	}
	select {
	case q.events <- e:
		q.bytes += len(e.payload)
		return true
	default:
		return false
	}
}

// pop waits for an event, or until done.
func (q *queue) pop(done <-chan struct{}) (e event, ok bool) {
	select {
	case <-done: // first, should both be ready
		return event{}, false
	default:
	}
	select {
	case e = <-q.events:
		q.took(e)
		return e, true
	case <-done:
		return event{}, false
	}
}

func (q *queue) took(e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(e.payload)
}

// clear empties the queue and returns how many events it held.
func (q *queue) clear() (n int) {
	for {
		select {
		case e := <-q.events:
			q.took(e)
			n++
		default:
			return n
		}
	}
}

func (q *queue) len() int { return len(q.events) }

// drops counts what was dropped since the log was last told.
type drops struct {
	mu     sync.Mutex
	logged time.Time
	since  int
}

// note counts one more, and returns how many there are to log now, if any.
func (d *drops) note(now time.Time) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since++
	if !d.logged.IsZero() && now.Sub(d.logged) < dropLogInterval {
		return 0
	}
	n := d.since
	d.since, d.logged = 0, now
	return n
}
