package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store/storetest"
)

// start is what the wall shows when a test begins.
var start = time.Date(2026, 3, 14, 9, 26, 53, 589_000_000, time.UTC)

func TestLockoutMemoryIsBounded(t *testing.T) {
	clock := storetest.NewClock(start)
	l := newLockout(Lockout{Failures: 5, Duration: time.Minute}, clock)
	victim := suspect{"victim", "192.0.2.1"}
	for range 5 {
		l.fail(victim)
	}
	for i := range maxSuspects - 1 {
		l.fail(suspect{fmt.Sprint("agent-", i), "192.0.2.2"})
	}
	if l.check(victim) == nil {
		t.Fatal("a lock was forgotten while there was room for it")
	}
	l.fail(suspect{"one-more", "192.0.2.2"})
	if n := l.records.Len(); n != maxSuspects {
		t.Errorf("%d suspects are remembered, want at most %d", n, maxSuspects)
	}
	if err := l.check(victim); err != nil {
		t.Errorf("the longest untouched is still there: %v", err)
	}
	// One suspect's failures are bounded, too.
	busy := suspect{"busy", "192.0.2.3"}
	for range 100 {
		l.fail(busy)
		clock.Advance(time.Minute)
	}
	if r, _ := l.records.Peek(busy); len(r.failures) > 5 {
		t.Errorf("%d failures of one suspect are remembered", len(r.failures))
	}
	// A good signature leaves nothing behind.
	l.succeed(busy)
	if l.records.Contains(busy) {
		t.Error("a suspect that was cleared is remembered")
	}
}

func TestLockoutFollowsItsConfig(t *testing.T) {
	clock := storetest.NewClock(start)
	l := newLockout(Lockout{Failures: 2, Duration: 10 * time.Second}, clock)
	s := suspect{"ann", "192.0.2.1"}
	if l.fail(s) || l.check(s) != nil {
		t.Fatal("one failure of two locks")
	}
	clock.Advance(10 * time.Second)
	if !l.fail(s) {
		t.Fatal("two failures within the duration do not lock")
	}
	for _, wait := range []time.Duration{10 * time.Second, 4 * time.Second} {
		err := l.check(s)
		var e *agentrelay.Error
		if !errors.As(err, &e) || e.Code != agentrelay.CodeLocked || e.RetryAfter != wait {
			t.Fatalf("got %v, want locked for %v", err, wait)
		}
		clock.Advance(6 * time.Second)
	}
	if err := l.check(s); err != nil {
		t.Fatalf("still locked: %v", err)
	}
}
