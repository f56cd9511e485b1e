package httpapi

import (
	"container/list"
	"io"
	"sync"

	agentrelay "github.com/agent-relay/agent-relay"
)

// maxUnverified is how many bytes of bodies may be in memory of whose senders
// nothing is known yet.
const maxUnverified = 64 << 20

// unverified bounds the memory of bodies that were not verified. When it is
// used up, the body that has been arriving for longest is cut off: who sends
// slowly must not shut those out that do not.
type unverified struct {
	limit   int64
	mu      sync.Mutex
	freed   *sync.Cond
	held    int64
	arrives list.List // of *arrival, oldest first
}

// arrival is one body that arrives.
type arrival struct {
	all     *unverified
	from    io.Reader
	cut     func() // makes reading fail
	size    int64
	evicted bool
	place   *list.Element
}

var errCutOff = &agentrelay.Error{
	Code:    agentrelay.CodeBusy,
	Message: "the broker has too many unfinished requests, and this one was arriving for longest; send it again",
}

func newUnverified(limit int64) *unverified {
	u := &unverified{limit: limit}
	u.freed = sync.NewCond(&u.mu)
	return u
}

// begin counts a body that is to be read. end is to be called when it was read,
// and its signature will be checked, or when it was given up.
func (u *unverified) begin(from io.Reader, cut func()) *arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	a := &arrival{all: u, from: from, cut: cut}
	a.place = u.arrives.PushBack(a)
	return a
}

// end reports whether the body was cut off. After it nothing is cut any more.
func (a *arrival) end() (cut bool) {
	u := a.all
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held -= a.size
	a.size = 0
	u.arrives.Remove(a.place)
	u.freed.Broadcast()
	return a.evicted
}

// Read reads on, after room was made for what was read.
func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.from.Read(p)
	if a.isCut(int64(n)) {
		return 0, errCutOff
	}
	return n, err
}

// isCut counts what was read, and reports whether the body was cut off.
func (a *arrival) isCut(n int64) bool {
	u := a.all
	u.mu.Lock()
	defer u.mu.Unlock()
	for !a.evicted && u.held+n > u.limit {
		oldest := u.arrives.Front()
		for oldest != nil && oldest.Value.(*arrival).evicted {
			oldest = oldest.Next()
		}
		// There is at least this one.
		victim := oldest.Value.(*arrival)
		victim.evicted = true
		if victim == a {
			break
		}
		victim.cut()
		u.freed.Broadcast() // it may wait for room itself
		for !a.evicted && victim.size > 0 {
			u.freed.Wait()
		}
	}
	if a.evicted {
		return true
	}
	u.held += n
	a.size += n
	return false
}
