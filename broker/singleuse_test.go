package broker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store/storetest"
)

// used is a signature with a timestamp so far from the clock.
func (s *singleUse) use(t *testing.T, clock *storetest.Clock, secret string, off time.Duration) error {
	t.Helper()
	at := clock.Now().Add(off)
	text := fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond())
	stamp, err := agentrelay.ParseTimestamp(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.take(secret, stamp, agentrelay.Sign(secret, "GET", "/peers", text, nil), clock.Now())
}

func reasonOf(err error) agentrelay.Reason {
	var e *agentrelay.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestSingleUseBeginsWithTheStart(t *testing.T) {
	clock := storetest.NewClock(start)
	clock.Advance(time.Hour)
	s := newSingleUse(clock)
	clock.Advance(time.Second)
	if err := s.use(t, clock, "a", -time.Second); err != nil {
		t.Errorf("signed as the broker started: %v", err)
	}
	err := s.use(t, clock, "a", -time.Second-1)
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Reason != agentrelay.ReasonBeforeStart || !e.ServerTime.Equal(clock.Now()) || e.Skew != -time.Second-1 {
		t.Errorf("signed before: %+v", err)
	}
	// A wall clock that is set back shuts nobody out.
	clock.Jump(-time.Hour)
	if err := s.use(t, clock, "a", 0); err != nil {
		t.Errorf("after the clock was set back: %v", err)
	}
}

func TestSingleUseMemoryIsBounded(t *testing.T) {
	clock := storetest.NewClock(start)
	s := newSingleUse(clock)
	s.limit = 3
	clock.Advance(time.Minute)
	for i := range 3 {
		if err := s.use(t, clock, "a", time.Duration(i)); err != nil {
			t.Fatal(err)
		}
	}
	// It refuses what is new, and still knows what is old.
	err := s.use(t, clock, "a", 3)
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Code != agentrelay.CodeRateLimited || e.RetryAfter <= 0 {
		t.Errorf("when the memory is full: %v", err)
	}
	if err := s.use(t, clock, "a", 0); reasonOf(err) != agentrelay.ReasonReplayed {
		t.Errorf("a replay when the memory is full: %v", err)
	}
	if err := s.use(t, clock, "b", 3); err != nil {
		t.Errorf("another secret: %v", err)
	}
	// What no longer passes is forgotten; nothing sooner.
	clock.Advance(agentrelay.MaxFractionalSkew)
	if err := s.use(t, clock, "a", -agentrelay.MaxFractionalSkew); reasonOf(err) != agentrelay.ReasonReplayed {
		t.Errorf("a replay at the last moment: %v", err)
	}
	clock.Advance(time.Second)
	for i := range 3 {
		if err := s.use(t, clock, "a", time.Duration(i)); err != nil {
			t.Errorf("when there is room again: %v", err)
		}
	}
	if u := s.used["a"]; u.count != 3 || len(u.bySecond) != 1 {
		t.Errorf("%d are remembered in %d seconds", u.count, len(u.bySecond))
	}
}

// A timestamp ahead of the clock is remembered for as long as it passes.
func TestSingleUseAheadOfTheClock(t *testing.T) {
	clock := storetest.NewClock(start)
	s := newSingleUse(clock)
	if err := s.use(t, clock, "a", agentrelay.MaxFractionalSkew); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * agentrelay.MaxFractionalSkew)
	if err := s.use(t, clock, "a", -agentrelay.MaxFractionalSkew); reasonOf(err) != agentrelay.ReasonReplayed {
		t.Errorf("a replay at the last moment: %v", err)
	}
}

func BenchmarkSingleUse(b *testing.B) {
	clock := storetest.NewClock(start)
	s := newSingleUse(clock)
	stamp, err := agentrelay.ParseTimestamp(fmt.Sprintf("%d.5", start.Unix()+1))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%100_000 == 0 {
			s = newSingleUse(clock)
		}
		if err := s.take("a", stamp, fmt.Sprintf("%016x", i), start); err != nil {
			b.Fatal(err)
		}
	}
}
