package broker

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func set[T any](value T) Patch[T] { return Patch[T]{Set: true, Value: &value} }

func (f *fixture) info(name string) AgentInfo {
	f.t.Helper()
	info, err := f.AgentInfo(ctx, name)
	f.must(err)
	return info
}

func (f *fixture) wantError(err, want error) *agentrelay.Error {
	f.t.Helper()
	var e *agentrelay.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		f.t.Fatalf("got %v, want %v", err, want)
	}
	return e
}

func TestAgentInfo(t *testing.T) {
	f := newFixture(t)
	f.Reload(ReloadOptions{
		AllowedTargets: map[string][]string{"ben": {"zoe"}, "named": nil}, Heartbeat: time.Minute,
		Lockout: Lockout{Failures: 5, Duration: time.Hour},
	})
	f.send("m1", "m2", "m3")
	_, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}, 0)
	f.must(err)
	f.clock.Advance(2 * time.Minute)
	end := f.clock.Now().Add(time.Hour)
	first, err := f.AddAgent(ctx, "ann", AgentPatch{Description: set("sends"), AllowedTargets: set([]string{"ben"}), MaxQueued: set(int64(9))})
	f.must(err)
	second, err := f.AddKey(ctx, "ann", end)
	f.must(err)
	for range 5 {
		f.lockout.fail(suspect{"ann", "192.0.2.1"})
	}
	f.clock.Advance(time.Minute)
	for range 5 {
		f.lockout.fail(suspect{"ann", "192.0.2.2"})
	}
	made := start.Add(2 * time.Minute).Truncate(time.Millisecond).Local()
	want := []AgentInfo{
		{
			Agent: "ann", Description: "sends", AllowedTargets: []string{"ben"}, MaxQueued: 9, Registered: true,
			Keys: []KeyInfo{
				{ID: first.ID, Created: made},
				{ID: second.ID, Created: made, NotAfter: end.Truncate(time.Millisecond).Local()},
			},
			LockedUntil: f.clock.Now().Add(time.Hour),
		},
		{Agent: "ben", AllowedTargets: []string{"zoe"}, Registered: true, LastSeen: start, Queued: 2, Leased: 1},
		{Agent: "named", AllowedTargets: []string{}},
	}
	slices.SortFunc(want[0].Keys, func(a, b KeyInfo) int { return strings.Compare(a.ID, b.ID) }) // made at one time
	all, err := f.AgentInfos(ctx)
	f.must(err)
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("the agents differ (-want +got):\n%s", diff)
	}
	for _, one := range want {
		if diff := cmp.Diff(one, f.info(one.Agent)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", one.Agent, diff)
		}
	}
	_, err = f.AgentInfo(ctx, "Ann")
	if e := f.wantError(err, agentrelay.ErrNoSuchAgent); !slices.Equal(e.Suggestions, []string{"ann"}) {
		t.Errorf("the suggestions are %q", e.Suggestions)
	}
	f.must(f.UnlockAgent(ctx, "ann"))
	if until := f.info("ann").LockedUntil; !until.IsZero() {
		t.Errorf("unlocked, it is locked until %v", until)
	}
	f.must(f.UnlockAgent(ctx, "ben")) // which is not locked
	f.wantError(f.UnlockAgent(ctx, "nobody"), agentrelay.ErrNoSuchAgent)
	f.lockout.fail(suspect{"nobody", "192.0.2.2"})
	f.must(f.UnlockAgent(ctx, "nobody"))
}

func TestAgentUpdates(t *testing.T) {
	f := newFixture(t)
	_, err := f.UpdateAgent(ctx, "ann", AgentPatch{})
	f.wantError(err, agentrelay.ErrNoSuchAgent)
	_, err = f.Register(ctx, "ann")
	f.must(err)
	info, err := f.UpdateAgent(ctx, "ann", AgentPatch{Description: set("text"), MaxQueued: set(int64(1))})
	f.must(err)
	if diff := cmp.Diff(f.info("ann"), info); diff != "" || info.Description != "text" || info.MaxQueued != 1 || info.AllowedTargets != nil {
		t.Errorf("got %+v", info)
	}
	before := f.info("ann")
	for name, p := range map[string]AgentPatch{
		"a long description": {Description: set(strings.Repeat("x", maxDescription+1))},
		"no text":            {Description: set("\xff")},
		"a bad target":       {AllowedTargets: set([]string{"ben", "b n"})},
		"many targets":       {AllowedTargets: set(slices.Repeat([]string{"ben"}, maxAllowedTargets+1))},
		"no room":            {MaxQueued: set(int64(0))},
		"a negative limit":   {MaxQueued: set(int64(-1))},
	} {
		_, err := f.UpdateAgent(ctx, "ann", p)
		if !errors.Is(err, agentrelay.ErrBadRequest) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := f.AddAgent(ctx, "zoe", p); !errors.Is(err, agentrelay.ErrBadRequest) {
			t.Errorf("%s: adding got %v", name, err)
		}
	}
	for _, name := range []string{"", "a b", strings.Repeat("x", 65)} {
		_, err := f.UpdateAgent(ctx, name, AgentPatch{})
		f.wantError(err, agentrelay.ErrBadRequest)
		_, err = f.AddAgent(ctx, name, AgentPatch{})
		f.wantError(err, agentrelay.ErrBadRequest)
	}
	if diff := cmp.Diff(before, f.info("ann")); diff != "" {
		t.Errorf("what was refused changed something (-before +after):\n%s", diff)
	}
	if _, err := f.AgentInfo(ctx, "zoe"); !errors.Is(err, agentrelay.ErrNoSuchAgent) {
		t.Errorf("an agent that was refused is there: %v", err)
	}
	info, err = f.UpdateAgent(ctx, "ann", AgentPatch{Description: Patch[string]{Set: true}, MaxQueued: Patch[int64]{Set: true}})
	f.must(err)
	if info.Description != "" || info.MaxQueued != 0 {
		t.Errorf("removed, it is %+v", info)
	}
}

func TestKeyErrors(t *testing.T) {
	f := newFixture(t)
	f.options.Reserved = map[string]bool{"telegram": true}
	_, err := f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"add twice":               {func() error { _, err := f.AddAgent(ctx, "ann", AgentPatch{}); return err }, agentrelay.ErrBadRequest},
		"add what is reserved":    {func() error { _, err := f.AddAgent(ctx, "telegram", AgentPatch{}); return err }, agentrelay.ErrForbidden},
		"remove what is reserved": {func() error { return f.RemoveAgent(ctx, "telegram") }, agentrelay.ErrForbidden},
		"key of a stranger":       {func() error { _, err := f.AddKey(ctx, "zoe", time.Time{}); return err }, agentrelay.ErrNoSuchAgent},
		"key that ended":          {func() error { _, err := f.AddKey(ctx, "ann", f.clock.Now()); return err }, agentrelay.ErrBadRequest},
		"rotate a stranger's":     {func() error { _, err := f.RotateKey(ctx, "zoe", 0); return err }, agentrelay.ErrNoSuchAgent},
		"rotate backwards":        {func() error { _, err := f.RotateKey(ctx, "ann", -1); return err }, agentrelay.ErrBadRequest},
		"revoke a stranger's":     {func() error { return f.RevokeKey(ctx, "zoe", "x") }, agentrelay.ErrNoSuchAgent},
		"revoke none":             {func() error { return f.RevokeKey(ctx, "ann", "x") }, agentrelay.ErrBadRequest},
		"remove a stranger":       {func() error { return f.RemoveAgent(ctx, "zoe") }, agentrelay.ErrNoSuchAgent},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if n := len(f.info("ann").Keys); n != 1 {
		t.Errorf("ann has %d keys, want 1", n)
	}
}

// A key is made of randomness alone, and of nothing if there is none.
func TestKeysAreRandom(t *testing.T) {
	f := newFixture(t)
	random := bytes.Repeat([]byte{0xab}, keyIDBytes)
	random = append(random, bytes.Repeat([]byte{0xcd}, secretBytes)...)
	f.options.Random = bytes.NewReader(random)
	k, err := f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	if k.ID != strings.Repeat("ab", 8) || k.Secret != strings.Repeat("cd", 32) || k.Agent != "ann" || !k.NotAfter.IsZero() {
		t.Errorf("the key is %#v, %s", k, k.Secret)
	}
	f.options.Random = bytes.NewReader(random[:20])
	_, err = f.AddKey(ctx, "ann", time.Time{})
	if err == nil || strings.Contains(err.Error(), "abab") {
		t.Errorf("with too little randomness: %v", err)
	}
	if n := len(f.info("ann").Keys); n != 1 {
		t.Errorf("ann has %d keys, want 1", n)
	}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, []Key{k}, k, &k)} {
		if strings.Contains(text, k.Secret) {
			t.Errorf("the secret prints: %s", text)
		}
	}
}

// What the store refuses changes nothing here either.
func TestAdministrationFails(t *testing.T) {
	f := newFixture(t)
	_, err := f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	before := f.info("ann")
	cause := errors.New("cannot write")
	for _, call := range []string{"AddAgent", "UpdateAgent", "RemoveAgent", "AddKey", "RotateKey", "RevokeKey", "Backlog"} {
		f.store.fail(call, cause)
	}
	for name, call := range map[string]func() error{
		"add":    func() error { _, err := f.AddAgent(ctx, "zoe", AgentPatch{}); return err },
		"update": func() error { _, err := f.UpdateAgent(ctx, "ann", AgentPatch{Description: set("x")}); return err },
		"remove": func() error { return f.RemoveAgent(ctx, "ann") },
		"key":    func() error { _, err := f.AddKey(ctx, "ann", time.Time{}); return err },
		"rotate": func() error { _, err := f.RotateKey(ctx, "ann", 0); return err },
		"revoke": func() error { return f.RevokeKey(ctx, "ann", before.Keys[0].ID) },
		"info":   func() error { _, err := f.AgentInfo(ctx, "ann"); return err },
		"infos":  func() error { _, err := f.AgentInfos(ctx); return err },
	} {
		if err := call(); !errors.Is(err, cause) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	f.store.fail("Backlog", nil)
	if diff := cmp.Diff(before, f.info("ann")); diff != "" {
		t.Errorf("ann differs (-before +after):\n%s", diff)
	}
	if f.registry.knows("zoe") {
		t.Error("zoe is registered")
	}
}

// Registering and removing at once leave store and registry alike.
func TestRegistryFollowsTheStore(t *testing.T) {
	f := newFixture(t)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for range 50 {
				if _, err := f.Register(ctx, "ann"); err != nil {
					t.Error(err)
				}
			}
		})
		wait.Go(func() {
			for range 50 {
				if err := f.RemoveAgent(ctx, "ann"); err != nil && !errors.Is(err, agentrelay.ErrNoSuchAgent) {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	agents, err := f.store.Agents(ctx)
	f.must(err)
	if known := f.registry.knows("ann"); known != (len(agents) == 1) {
		t.Errorf("the registry knows the agent: %v; the store: %v", known, agents)
	}
}

func TestRequeueAndCancel(t *testing.T) {
	f := newFixture(t)
	f.send("m1", "m2")
	f.must(f.Cancel(ctx, "m1"))
	found, err := f.Messages(ctx, "ben", []string{"m1"})
	f.must(err)
	if m := found["m1"]; m.Status != agentrelay.StatusFailed {
		t.Errorf("cancelled, it is %s", m.Status)
	}
	f.must(f.Requeue(ctx, "m1"))
	page, err := f.Poll(ctx, f.inbox(), 0)
	f.must(err)
	if len(page.Messages) != 2 || page.Messages[1].ID != "m1" {
		t.Errorf("requeued, the inbox is %+v", page.Messages)
	}
	f.wantError(f.Requeue(ctx, "unknown"), agentrelay.ErrNoSuchMessage)
	f.wantError(f.Cancel(ctx, "unknown"), agentrelay.ErrNoSuchMessage)
	receipts, err := f.Query(ctx, store.Filter{Agent: "ann", Limit: 10, MaxBytes: 1000})
	f.must(err)
	if len(receipts) != 1 || string(receipts[0].Body) != `{"status":"error","error":"cancelled"}` {
		t.Errorf("the sender got %+v", receipts)
	}
}

// What was signed with a secret is remembered as long as the secret is good,
// and while it would pass.
func TestSignaturesOfEndedKeysAreForgotten(t *testing.T) {
	f := newFixture(t)
	use := func(secret string) {
		t.Helper()
		f.must(f.singleUse.use(t, f.clock, secret, 0))
	}
	held := func(want int) {
		t.Helper()
		if n := len(f.singleUse.used); n != want {
			t.Errorf("signatures of %d secrets are remembered, want %d", n, want)
		}
	}
	f.clock.Advance(time.Minute)
	first, err := f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	use(f.options.Secret)
	use(first.Secret)
	second, err := f.RotateKey(ctx, "ann", time.Hour)
	f.must(err)
	use(second.Secret)
	held(3)
	f.must(f.RevokeKey(ctx, "ann", first.ID))
	held(2)
	third, err := f.RotateKey(ctx, "ann", 0)
	f.must(err)
	held(1)
	use(third.Secret)
	f.must(f.RemoveAgent(ctx, "ann"))
	held(1)
	f.clock.Advance(30 * time.Second)
	_, err = f.sweepOnce(ctx)
	f.must(err)
	held(1)
	f.clock.Advance(31 * time.Second)
	_, err = f.sweepOnce(ctx)
	f.must(err)
	held(0)
}
