package broker

import (
	"strconv"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// maxUsed bounds the signatures that are remembered of one secret. A request a
// signature for a minute, that is over 17,000 requests a second.
const maxUsed = 1 << 20

// singleUse sees to it that a signature whose timestamp has a fraction is good
// for one request. It remembers each for as long as its timestamp would pass,
// by the signature alone: the agent's name is not under it.
//
// What was used before the start is not known, so what was signed before it is
// refused. The start is as long ago as monotonic time says: a wall clock that is
// set back must not shut everybody out. It does make timestamps pass again that
// were forgotten, or used before the start.
type singleUse struct {
	clock store.Clock
	begun time.Duration
	limit int

	mu   sync.Mutex
	used map[string]*used // by secret
}

func newSingleUse(clock store.Clock) *singleUse {
	return &singleUse{clock: clock, begun: clock.Elapsed(), limit: maxUsed, used: map[string]*used{}}
}

// used are signatures by the second of their timestamps, cut to 64 bits: two
// that are taken for one are rarer than a repeated request, and answered alike.
type used struct {
	count    int
	bySecond map[int64]map[uint64]struct{}
	// floor is the first second that still passes.
	floor int64
}

// take uses a signature that was verified with secret. When the memory of that
// secret is full it refuses; it never forgets.
func (s *singleUse) take(secret string, t agentrelay.Timestamp, signature string, now time.Time) error {
	if begun := now.Add(s.begun - s.clock.Elapsed()); t.Time().Before(begun) {
		return clockRefusal(agentrelay.ReasonBeforeStart, t, now,
			"the request was signed before the broker started; sign it again")
	}
	key, err := strconv.ParseUint(signature[:16], 16, 64)
	if err != nil {
		return err // it was verified, so it is hexadecimal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.used[secret]
	if u == nil {
		u = &used{bySecond: map[int64]map[uint64]struct{}{}}
		s.used[secret] = u
	}
	u.forget(now.Add(-agentrelay.MaxFractionalSkew).Unix())
	second := t.Time().Unix()
	if _, known := u.bySecond[second][key]; known {
		return clockRefusal(agentrelay.ReasonReplayed, t, now,
			"this signature was used before; sign each request with a timestamp of its own")
	}
	if u.count >= s.limit {
		return &agentrelay.Error{
			Code: agentrelay.CodeRateLimited, RetryAfter: time.Second,
			Message: "too many requests were signed with this secret within a minute; try again later",
		}
	}
	if u.bySecond[second] == nil {
		u.bySecond[second] = map[uint64]struct{}{}
	}
	u.bySecond[second][key] = struct{}{}
	u.count++
	return nil
}

// forget drops what is older than second floor, which no longer passes.
func (u *used) forget(floor int64) {
	if floor <= u.floor {
		return
	}
	u.floor = floor
	for second, signatures := range u.bySecond {
		if second < floor {
			u.count -= len(signatures)
			delete(u.bySecond, second)
		}
	}
}

// tidy forgets what no longer passes, also of secrets that are no longer used.
func (s *singleUse) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for secret, u := range s.used {
		if u.forget(now.Add(-agentrelay.MaxFractionalSkew).Unix()); u.count == 0 {
			delete(s.used, secret)
		}
	}
}

// drop forgets what was signed with secrets that are no longer good.
func (s *singleUse) drop(secrets []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range secrets {
		delete(s.used, secret)
	}
}

// clockRefusal is a refusal that a new signature by the broker's clock mends.
func clockRefusal(reason agentrelay.Reason, t agentrelay.Timestamp, now time.Time, message string) error {
	return &agentrelay.Error{
		Code: agentrelay.CodeUnauthenticated, Reason: reason, Message: message,
		ServerTime: now, Skew: t.Time().Sub(now),
	}
}
