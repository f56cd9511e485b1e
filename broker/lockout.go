package broker

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Lockout is when failed authentication locks: Failures bad signatures of one
// agent from one address within Duration, with no good one between, lock that
// pair for Duration.
type Lockout struct {
	Failures int
	Duration time.Duration
}

// maxSuspects bounds the memory of bad signatures. The longest untouched goes
// first; to push a lock out takes so many other bad signatures that the limit
// on refused requests stops them.
const maxSuspects = 1 << 14

// suspect is an agent name used from one address.
type suspect struct{ agent, address string }

// record is what is remembered of a suspect.
type record struct {
	// failures are when its last bad signatures came, oldest first.
	failures    []time.Duration
	lockedUntil time.Duration
}

type lockout struct {
	clock store.Clock

	mu sync.Mutex
	Lockout
	records *simplelru.LRU[suspect, *record]
	// ended is told of a lock whose time was found to be over.
	ended func(suspect)
}

func newLockout(l Lockout, clock store.Clock) *lockout {
	records, err := simplelru.NewLRU[suspect, *record](maxSuspects, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &lockout{Lockout: l, clock: clock, records: records}
}

// check refuses a suspect that is locked, whatever it sends.
func (l *lockout) check(s suspect) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records.Peek(s)
	if !ok {
		return nil
	}
	left := r.lockedUntil - l.clock.Elapsed()
	if left <= 0 {
		if r.lockedUntil != 0 && l.ended != nil {
			l.ended(s)
		}
		r.lockedUntil = 0
		return nil
	}
	return &agentrelay.Error{
		Code:       agentrelay.CodeLocked,
		Message:    fmt.Sprintf("%q is locked from this address after %d bad signatures; check its secret and try again later", s.agent, l.Failures),
		RetryAfter: left,
	}
}

// fail counts a bad signature, and reports whether it locked the suspect.
func (l *lockout) fail(s suspect) (locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Elapsed()
	r, ok := l.records.Get(s)
	if !ok {
		r = &record{}
		l.records.Add(s, r)
	}
	r.failures = append(r.failures, now)
	if excess := len(r.failures) - l.Failures; excess > 0 {
		r.failures = append(r.failures[:0], r.failures[excess:]...)
	}
	if len(r.failures) < l.Failures || now-r.failures[0] > l.Duration {
		return false
	}
	r.failures = nil
	r.lockedUntil = now + l.Duration
	return true
}

// succeed forgets a suspect's bad signatures.
func (l *lockout) succeed(s suspect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records.Remove(s)
}

// set changes when failures lock.
func (l *lockout) set(o Lockout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Lockout = o
}

// unlock forgets the bad signatures of an agent from all addresses, and reports
// whether there were some.
func (l *lockout) unlock(agent string) (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.records.Keys() {
		if s.agent == agent {
			some = l.records.Remove(s) || some
		}
	}
	return some
}

// locked returns how much longer agents are locked, at the address where that
// lasts longest.
func (l *lockout) locked() map[string]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, now := map[string]time.Duration{}, l.clock.Elapsed()
	for _, s := range l.records.Keys() {
		if r, ok := l.records.Peek(s); ok && r.lockedUntil-now > all[s.agent] {
			all[s.agent] = r.lockedUntil - now
		}
	}
	return all
}
