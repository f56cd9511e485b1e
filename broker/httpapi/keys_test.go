package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// addKeyed adds an agent and returns its first key.
func (r *relay) addKeyed(name string) broker.Key {
	r.t.Helper()
	k, err := r.broker.AddAgent(context.Background(), name, broker.AgentPatch{})
	return r.mustKey(k, err)
}

func (r *relay) mustKey(k broker.Key, err error) broker.Key {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

func (r *relay) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// peers asks for the peers, signed with a secret. What is let in must be signed
// with the same one.
func (r *relay) peers(agent, secret string) answer {
	r.t.Helper()
	return r.do(call{agent: agent, target: "/peers", secret: secret})
}

func (a answer) wantUnknown() {
	a.t.Helper()
	a.wantError(http.StatusUnauthorized, agentrelay.CodeUnknownAgent)
	if a.header.Get(agentrelay.HeaderSignature) != "" {
		a.t.Error("a refusal before the signature is signed")
	}
}

func TestOwnKeys(t *testing.T) {
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	r.agent("ben")
	r.agent("cat")
	ann, ben := r.addKeyed("ann"), r.addKeyed("ben")
	check := func() {
		t.Helper()
		for _, k := range []broker.Key{ann, ben} {
			r.peers(k.Agent, k.Secret).want(http.StatusOK, nil)
			r.peers(k.Agent, secret).wantReason(agentrelay.ReasonBadSignature)
		}
		r.peers("ann", ben.Secret).wantReason(agentrelay.ReasonBadSignature)
		r.peers("cat", ann.Secret).wantReason(agentrelay.ReasonBadSignature)
		r.peers("nobody", ann.Secret).wantReason(agentrelay.ReasonBadSignature)
		r.peers("cat", secret).want(http.StatusOK, nil)
		r.peers("nobody", secret).want(http.StatusOK, nil)
	}
	check()
	r.stop()
	s.clock = r.clock
	r = newRelay(t, s)
	check()
	// It counts as registered, and works like any other.
	r.do(call{agent: "ben", secret: ben.Secret, method: http.MethodPost, target: "/messages", body: `{"to":"ann","id":"m1"}`}).want(http.StatusCreated, nil)
	var p page
	r.do(call{agent: "ann", secret: ann.Secret, target: "/messages"}).want(http.StatusOK, &p)
	if len(p.Messages) != 1 {
		t.Errorf("ann got %d messages, want 1", len(p.Messages))
	}
}

// Any key that has not ended is good; one that was revoked is refused with the
// next request, and after the last one the shared secret is not good either,
// until the agent is removed.
func TestKeysEnd(t *testing.T) {
	ctx := context.Background()
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	keys := []broker.Key{r.addKeyed("ann")}
	for i := range 4 {
		var end time.Time
		if i == 3 {
			end = r.clock.Now().Add(time.Minute)
		}
		k, err := r.broker.AddKey(ctx, "ann", end)
		keys = append(keys, r.mustKey(k, err))
	}
	for _, k := range keys {
		r.peers("ann", k.Secret).want(http.StatusOK, nil)
	}
	r.clock.Advance(time.Minute - time.Millisecond)
	r.peers("ann", keys[4].Secret).want(http.StatusOK, nil)
	r.clock.Advance(time.Millisecond)
	r.peers("ann", keys[4].Secret).wantReason(agentrelay.ReasonBadSignature)
	for i, k := range keys[:4] {
		r.peers("ann", k.Secret).want(http.StatusOK, nil)
		r.must(r.broker.RevokeKey(ctx, "ann", k.ID))
		if i < 3 {
			r.peers("ann", k.Secret).wantReason(agentrelay.ReasonBadSignature)
		}
	}
	refused := func() {
		t.Helper()
		for _, secret := range []string{keys[0].Secret, keys[3].Secret, keys[4].Secret, secret} {
			r.peers("ann", secret).wantUnknown()
		}
	}
	refused()
	r.stop()
	s.clock = r.clock
	r = newRelay(t, s)
	refused()
	k, err := r.broker.AddKey(ctx, "ann", time.Time{})
	r.peers("ann", r.mustKey(k, err).Secret).want(http.StatusOK, nil)
	r.peers("ann", secret).wantReason(agentrelay.ReasonBadSignature)
	r.must(r.broker.RemoveAgent(ctx, "ann"))
	r.peers("ann", k.Secret).wantReason(agentrelay.ReasonBadSignature)
	r.peers("ann", secret).want(http.StatusOK, nil)
}

// A key that ends while a request's body comes is not good for it.
func TestKeyEndsBeforeTheBody(t *testing.T) {
	r := newRelay(t, setup{})
	k := r.addKeyed("ann")
	c := r.complete(call{agent: "ann", secret: k.Secret, method: http.MethodPost, target: "/v1/recent", body: `{}`})
	raw := r.render(c)
	conn := r.dial()
	began := make(chan struct{})
	r.watch(func(*http.Request) { close(began) })
	conn.send(raw[:len(raw)-1])
	<-began
	r.watch(nil)
	r.must(r.broker.RevokeKey(context.Background(), "ann", k.ID))
	conn.send(raw[len(raw)-1:])
	conn.receive(c.method).wantUnknown()
}

// Keys are changed under agents at work, and none of their requests is refused.
func TestRotationDuringTraffic(t *testing.T) {
	const rotations, clients = 20, 4
	ctx := context.Background()
	r := newRelay(t, setup{})
	var current atomic.Pointer[broker.Key]
	first := r.addKeyed("ann")
	current.Store(&first)
	var working sync.WaitGroup
	var done atomic.Bool
	var answered [clients]atomic.Int64
	for i := range clients {
		working.Go(func() {
			conn := r.dial()
			for !done.Load() {
				c := r.complete(call{agent: "ann", target: "/peers", secret: current.Load().Secret})
				if _, err := conn.Write(r.render(c)); err != nil {
					t.Error(err)
					return
				}
				a, err := conn.tryReceive(c.method)
				if err != nil || a.status != http.StatusOK {
					t.Errorf("got %d %s, %v", a.status, a.body, err)
					return
				}
				a.wantSigned(c)
				answered[i].Add(1)
			}
		})
	}
	// each waits until every client had answers.
	each := func() {
		for i := range answered {
			for before := answered[i].Load(); answered[i].Load() < before+2 && !t.Failed(); {
				time.Sleep(time.Microsecond)
			}
		}
	}
	for range rotations {
		old := current.Load()
		k, err := r.broker.RotateKey(ctx, "ann", time.Hour)
		if err != nil {
			t.Error(err)
			break
		}
		each() // with the old key
		current.Store(&k)
		each()
		if err := r.broker.RevokeKey(ctx, "ann", old.ID); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	working.Wait()
	r.peers("ann", first.Secret).wantReason(agentrelay.ReasonBadSignature)
}

func TestRotationEndsTheOldKeys(t *testing.T) {
	ctx := context.Background()
	r := newRelay(t, setup{})
	first := r.addKeyed("ann")
	second, err := r.broker.RotateKey(ctx, "ann", time.Hour)
	r.mustKey(second, err)
	r.clock.Advance(time.Hour - time.Millisecond)
	r.peers("ann", first.Secret).want(http.StatusOK, nil)
	r.peers("ann", second.Secret).want(http.StatusOK, nil)
	r.clock.Advance(time.Millisecond)
	r.peers("ann", first.Secret).wantReason(agentrelay.ReasonBadSignature)
	third, err := r.broker.RotateKey(ctx, "ann", 0)
	r.mustKey(third, err)
	r.peers("ann", second.Secret).wantReason(agentrelay.ReasonBadSignature)
	r.peers("ann", third.Secret).want(http.StatusOK, nil)
}

// A signature by a key is good once, like any other.
func TestKeysAndSingleUse(t *testing.T) {
	r := newRelay(t, setup{requireSingleUse: true})
	k := r.addKeyed("ann")
	r.peers("ann", k.Secret).wantReason(agentrelay.ReasonSingleUseRequired)
	c := r.once(call{agent: "ann", target: "/peers", secret: k.Secret})
	r.do(c).want(http.StatusOK, nil)
	r.do(c).wantReason(agentrelay.ReasonReplayed)
}

func TestRequireAgentKeys(t *testing.T) {
	r := newRelay(t, setup{requireAgentKeys: true, reserved: map[string]bool{"telegram": true}})
	k := r.addKeyed("ann")
	r.peers("ann", k.Secret).want(http.StatusOK, nil)
	r.peers("ann", secret).wantReason(agentrelay.ReasonBadSignature)
	for range 10 { // which locks nobody
		r.peers("ben", secret).wantUnknown()
		r.peers("ben", k.Secret).wantUnknown()
	}
	o := broker.ReloadOptions{Heartbeat: time.Minute, Lockout: broker.Lockout{Failures: 5, Duration: time.Minute}}
	r.broker.Reload(o)
	r.peers("ben", secret).want(http.StatusOK, nil)
	r.peers("ann", secret).wantReason(agentrelay.ReasonBadSignature)
	// Nobody can sign for what is the broker's own.
	r.peers("telegram", secret).wantUnknown()
	r.peers("telegram", k.Secret).wantUnknown()
	o.RequireAgentKeys = true
	r.broker.Reload(o)
	r.peers("ben", secret).wantUnknown()
	r.peers("ann", k.Secret).want(http.StatusOK, nil)
}

// The key is looked for after the name and before the lock; a refusal counts
// for the address.
func TestUnknownAgentInOrder(t *testing.T) {
	r := newRelay(t, setup{perAddress: 4})
	k := r.addKeyed("ann")
	r.must(r.broker.RevokeKey(context.Background(), "ann", k.ID))
	r.do(call{agent: "ann", target: "/peers", timestamp: "never"}).wantUnknown()
	r.do(call{agent: "no name", target: "/peers"}).wantReason(agentrelay.ReasonBadAgentName)
	// While the body is yet to come.
	conn := r.dial()
	conn.send(r.render(call{agent: "ann", method: http.MethodPost, target: "/messages", length: 1000}))
	conn.receive(http.MethodPost).wantUnknown()
	r.peers("ann", secret).wantUnknown()
	r.peers("ann", secret).wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
}

func TestUnknownAgentBeforeTheLock(t *testing.T) {
	r := newRelay(t, setup{})
	k := r.addKeyed("ann")
	r.wantBad("ann", 5)
	r.peers("ann", k.Secret).wantLocked("300")
	r.must(r.broker.RevokeKey(context.Background(), "ann", k.ID))
	r.peers("ann", k.Secret).wantUnknown()
	k, err := r.broker.AddKey(context.Background(), "ann", time.Time{})
	r.peers("ann", r.mustKey(k, err).Secret).wantLocked("300")
	r.must(r.broker.UnlockAgent(context.Background(), "ann"))
	r.peers("ann", k.Secret).want(http.StatusOK, nil)
}

// When a key was used is known at once, and written once a minute.
func TestLastUse(t *testing.T) {
	ctx := context.Background()
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	k := r.addKeyed("ann")
	other, err := r.broker.AddKey(ctx, "ann", time.Time{})
	r.mustKey(other, err)
	want := func(at time.Time) {
		t.Helper()
		info, err := r.broker.AgentInfo(ctx, "ann")
		r.must(err)
		for _, got := range info.Keys {
			if got.ID == k.ID && !got.LastUsed.Equal(at) || got.ID == other.ID && !got.LastUsed.IsZero() {
				t.Errorf("%s was last used at %v, want %v", got.ID, got.LastUsed, at)
			}
		}
	}
	want(time.Time{})
	r.peers("ann", k.Secret).want(http.StatusOK, nil) // the first use is written at once
	r.store.wait(t, "Used", 1)
	want(r.clock.Now())
	for _, step := range []time.Duration{30 * time.Second, 29 * time.Second} {
		r.clock.Advance(step)
		r.peers("ann", k.Secret).want(http.StatusOK, nil)
		r.peers("ann", other.Secret+"x").wantReason(agentrelay.ReasonBadSignature)
		want(r.clock.Now())
		_, err := r.broker.UpdateAgent(ctx, "ann", broker.AgentPatch{})
		r.must(err)
		want(r.clock.Now())
	}
	if n := r.store.count("Used"); n != 1 {
		t.Errorf("it was written %d times within a minute", n)
	}
	r.clock.Advance(time.Second)
	r.peers("ann", k.Secret).want(http.StatusOK, nil)
	r.store.wait(t, "Used", 2)
	r.clock.Advance(time.Second)
	r.peers("ann", k.Secret).want(http.StatusOK, nil)
	last := r.clock.Now()
	r.stop()
	s.clock = r.clock
	r = newRelay(t, s)
	want(last.Truncate(time.Millisecond))
	r.store.set(func(s *spy) { s.failUsed = errors.New("the cause") })
	r.clock.Advance(time.Minute)
	r.peers("ann", k.Secret).want(http.StatusOK, nil) // nobody waits for it
	r.store.wait(t, "Used", 1)
}

// The routing rules of the config win over those that an operator set.
func TestRoutingRulesOfOperators(t *testing.T) {
	ctx := context.Background()
	r := newRelay(t, setup{targets: map[string][]string{"tom": {"ben"}}})
	for _, name := range []string{"ann", "ben", "tom"} {
		r.agent(name)
	}
	only := func(names ...string) broker.AgentPatch {
		return broker.AgentPatch{AllowedTargets: broker.Patch[[]string]{Set: true, Value: &names}}
	}
	reaches := func(from, to string, want bool) {
		t.Helper()
		a := agent{r, from}.post("/messages", fmt.Sprintf(`{"to":%q}`, to))
		if want {
			a.want(http.StatusCreated, nil)
		} else {
			a.wantError(http.StatusForbidden, agentrelay.CodeForbidden)
		}
	}
	update := func(name string, p broker.AgentPatch, want error) {
		t.Helper()
		if _, err := r.broker.UpdateAgent(ctx, name, p); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	reaches("ann", "tom", true)
	update("ann", only("ben"), nil)
	reaches("ann", "tom", false)
	reaches("ann", "ben", true)
	update("ann", only(), nil)
	reaches("ann", "ben", false)
	update("ann", broker.AgentPatch{AllowedTargets: broker.Patch[[]string]{Set: true}}, nil)
	reaches("ann", "tom", true)
	reaches("tom", "ann", false)
	update("tom", only("ann"), agentrelay.ErrForbidden)
	reaches("tom", "ann", false)
	r.broker.Reload(broker.ReloadOptions{AllowedTargets: map[string][]string{"ann": nil}, Heartbeat: time.Minute})
	reaches("tom", "ann", true)
	reaches("ann", "ben", false)
	update("tom", only("ben"), nil)
	reaches("tom", "ann", false)
}

// What a key signs with is nowhere in an answer that others get.
func TestKeysAreNotAnswered(t *testing.T) {
	r := newRelay(t, setup{requireAgentKeys: true})
	k := r.addKeyed("ann")
	for _, a := range []answer{
		r.peers("ann", k.Secret), r.peers("ann", "x"), r.peers("ben", k.Secret),
		r.do(call{target: "/", unsigned: true}), r.do(call{target: "/metrics", unsigned: true}),
	} {
		if strings.Contains(a.body, k.Secret) || strings.Contains(a.body, k.ID) {
			t.Errorf("the answer holds a key: %s", a.body)
		}
	}
}
