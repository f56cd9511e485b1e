package socket

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBehind is how many events wait for a client; of more, the oldest are
	// lost.
	maxBehind = 1024
	// maxUnread is how many bytes of replies wait for a client before nothing
	// more is done for it.
	maxUnread = 4 << 20
	// maxPending is how many requests of a client are under way at once.
	maxPending = 64
)

// outbox is what waits to be written to a client: replies, whose number the
// session bounds, and events, of which the newest maxBehind are kept. Whoever
// puts something in never waits for the client.
type outbox struct {
	subscribers *atomic.Int64
	lagged      func(missed uint64)

	mu      sync.Mutex
	changed *sync.Cond
	// halted lets nothing more begin, closed lets nothing more be published,
	// and when it is broken nothing is written any more.
	halted, closed, broken bool
	replies                [][]byte
	// pending are the requests that began and whose replies are not written;
	// unread counts the bytes of the replies that are not written.
	pending, unread int

	// wanted has the names of events that are subscribed to; subscribed is how
	// they count in subscribers.
	wanted     map[string]bool
	subscribed bool
	// events is a ring of count events that begins at first.
	events       []event
	first, count int
	// seq is the number of the last event that was taken, or lost; missed of
	// them were lost since one was taken.
	seq, missed uint64
}

func newOutbox(subscribers *atomic.Int64, lagged func(missed uint64)) *outbox {
	o := &outbox{subscribers: subscribers, lagged: lagged, wanted: map[string]bool{}}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// reply puts a line in that answers a request.
func (o *outbox) reply(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(line)
}

func (o *outbox) add(line []byte) {
	if o.broken {
		return
	}
	o.replies = append(o.replies, line)
	o.unread += len(line)
	o.changed.Broadcast()
}

// subscribe adds names to those that are wanted, and then answers, so that no
// event comes before the answer.
func (o *outbox) subscribe(names []string, answer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		o.wanted[name] = true
	}
	o.countSubscriber()
	o.add(answer)
}

// unsubscribe takes names from those that are wanted, with what waits of them.
func (o *outbox) unsubscribe(names []string, answer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		delete(o.wanted, name)
	}
	kept := make([]event, 0, o.count)
	for i := range o.count {
		if e := o.events[(o.first+i)%len(o.events)]; o.wanted[string(e.Kind)] {
			kept = append(kept, e)
		}
	}
	o.events, o.first, o.count = kept[:len(kept):len(kept)], 0, len(kept)
	o.countSubscriber()
	if !o.subscribed {
		o.countLost()
	}
	o.add(answer)
}

// countSubscriber keeps subscribers right.
func (o *outbox) countSubscriber() {
	wants := len(o.wanted) > 0 && !o.closed
	switch {
	case wants && !o.subscribed:
		o.subscribers.Add(1)
	case !wants && o.subscribed:
		o.subscribers.Add(-1)
	}
	o.subscribed = wants
}

// publish puts an event in if it is wanted.
func (o *outbox) publish(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.subscribed || o.broken || !o.wanted[string(e.Kind)] {
		return
	}
	switch {
	case o.count == maxBehind:
		o.first = (o.first + 1) % len(o.events)
		o.count--
		o.missed++
	case o.count == len(o.events):
		o.grow()
	}
	o.events[(o.first+o.count)%len(o.events)] = e
	o.count++
	o.changed.Broadcast()
}

// grow makes room in the ring, which is full.
func (o *outbox) grow() {
	events := make([]event, min(max(16, 2*len(o.events)), maxBehind))
	n := copy(events, o.events[o.first:])
	copy(events[n:], o.events[:o.first])
	o.events, o.first = events, 0
}

// next waits for something to write. Replies come before events. There is
// nothing more when the outbox is closed and empty, or broken.
func (o *outbox) next() (line []byte, isReply, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.broken:
			return nil, false, false
		case len(o.replies) > 0:
			line := o.replies[0]
			o.replies[0] = nil
			o.replies = o.replies[1:]
			return line, true, true
		case o.missed > 0:
			missed := o.missed
			o.missed = 0
			o.seq += missed
			o.lagged(missed)
			return appendLagged(nil, o.seq, missed, time.Now()), false, true
		case o.count > 0:
			return o.take(), false, true
		case o.closed:
			return nil, false, false
		}
		o.changed.Wait()
	}
}

// take takes the oldest event.
func (o *outbox) take() []byte {
	e := o.events[o.first]
	o.events[o.first] = event{}
	o.first = (o.first + 1) % len(o.events)
	o.count--
	o.seq++
	return e.appendJSON(nil, o.seq)
}

// write writes what comes until there is nothing more, or w fails.
func (o *outbox) write(w io.Writer) error {
	for {
		line, isReply, more := o.next()
		if !more {
			return nil
		}
		_, err := w.Write(line)
		o.wrote(line, isReply, err)
		if err != nil {
			return err
		}
	}
}

// wrote notes what became of a line.
func (o *outbox) wrote(line []byte, isReply bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if isReply {
		o.pending--
		o.unread -= len(line)
	}
	if err != nil {
		o.broken = true
		o.countLost()
	}
	o.changed.Broadcast()
}

// begin makes a request count as under way, until its reply was written. It
// waits while there are too many, or while the client does not read. It
// reports false if nobody waits for a reply any more.
func (o *outbox) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.broken && !o.halted && (o.pending >= maxPending || o.unread > maxUnread) {
		o.changed.Wait()
	}
	if o.broken || o.halted {
		return false
	}
	o.pending++
	return true
}

// skip ends a request that is not answered.
func (o *outbox) skip() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending--
	o.changed.Broadcast()
}

// halt lets nothing more begin.
func (o *outbox) halt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.halted = true
	o.changed.Broadcast()
}

// close ends the subscription. What is in the outbox is still to be written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.countSubscriber()
	o.changed.Broadcast()
}

// countLost tells of events that nobody will be told of.
func (o *outbox) countLost() {
	if o.missed > 0 {
		o.lagged(o.missed)
		o.missed = 0
	}
}
