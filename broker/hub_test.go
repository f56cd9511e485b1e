package broker

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/storetest"
)

// heard is what a subscriber was told.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) tell(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := string(e.Kind)
	for _, part := range []string{e.ID, e.From, e.To, e.Agent, string(e.Reason)} {
		if part != "" {
			text += " " + part
		}
	}
	if e.At.IsZero() {
		text += " at no time"
	}
	h.list = append(h.list, text)
}

// want checks what was heard since the last look.
func (h *heard) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.list, want) {
		t.Errorf("heard\n%q\nwant\n%q", h.list, want)
	}
	h.list = nil
}

func (f *fixture) listen() *heard {
	h := &heard{}
	f.t.Cleanup(f.Subscribe(h.tell))
	return h
}

func TestMessageEvents(t *testing.T) {
	f := newFixture(t)
	h := f.listen()
	f.send("m1")
	h.want(t, "agent_registered ben", "agent_online ben", "message_accepted m1 ann ben")
	leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}, 0)
	f.must(err)
	h.want(t, "message_delivered m1 ann ben")
	settle := func(outcome agentrelay.Outcome) {
		_, err := f.Settle(ctx, store.Settlement{Agent: "ben", ID: "m1", LeaseID: leased[0].LeaseID, Outcome: outcome})
		f.must(err)
	}
	settle(agentrelay.OutcomeRetry)
	h.want(t, "message_requeued m1 ann ben")
	leased, err = f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}, 0)
	f.must(err)
	settle(agentrelay.OutcomeCompleted)
	h.want(t, "message_acked m1 ann ben")
	f.send("m2", "m3")
	h.want(t, "message_accepted m2 ann ben", "message_accepted m3 ann ben")
	f.options.NewID = func() string { return "r" }
	f.must(f.Cancel(ctx, "m2"))
	receipts, err := f.Query(ctx, store.Filter{Agent: "ann", Limit: 1, MaxBytes: 1})
	f.must(err)
	h.want(t, "message_failed m2 ann ben", "message_accepted "+receipts[0].ID+" ben ann")
	f.clock.Advance(8 * 24 * time.Hour)
	_, err = f.sweepOnce(ctx)
	f.must(err)
	h.mu.Lock()
	if !slices.Contains(h.list, "message_expired m3 ann ben") {
		t.Errorf("heard %q", h.list)
	}
	h.mu.Unlock()
}

func TestAgentEvents(t *testing.T) {
	f := newFixture(t)
	h := f.listen()
	try := func(agent, secret string) {
		t.Helper()
		now := fmt.Sprint(f.clock.Now().Unix())
		c, err := f.Challenge(Credentials{
			Agent: agent, Timestamp: now, Address: "192.0.2.1",
			Signature: agentrelay.Sign(secret, "GET", "/peers", now, nil),
		})
		if err == nil {
			_, _ = c.Verify("GET", "/peers", nil)
		}
	}
	k, err := f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	h.want(t, "agent_registered ann") // it was not seen yet
	try("ann", k.Secret)
	h.want(t, "agent_online ann")
	try("ann", k.Secret)
	try("nobody", f.options.Secret)
	h.want(t)
	try("a b", f.options.Secret)
	try("ann", "wrong")
	h.want(t, "auth_failed bad_agent_name", "auth_failed ann bad_signature")
	f.must(f.RevokeKey(ctx, "ann", k.ID))
	try("ann", k.Secret)
	h.want(t, "auth_failed ann unknown_agent")
	for range 5 {
		try("ben", "wrong")
	}
	try("ben", f.options.Secret)
	failed := slices.Repeat([]string{"auth_failed ben bad_signature"}, 4)
	h.want(t, append(failed, "agent_locked ben", "auth_failed ben bad_signature")...)
	f.must(f.RemoveAgent(ctx, "ann"))
	h.want(t, "agent_offline ann")
	_, err = f.Register(ctx, "ann")
	f.must(err)
	h.want(t, "agent_registered ann", "agent_online ann")
	_, err = f.Register(ctx, "ann")
	f.must(err)
	_, err = f.AddAgent(ctx, "ann", AgentPatch{})
	f.must(err)
	h.want(t)
}

// An agent goes when it was not seen for the heartbeat, and comes back with its
// next request.
func TestPresenceEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := f.listen()
		f.run()
		pass := func(d time.Duration) {
			f.clock.Advance(d)
			time.Sleep(d)
			synctest.Wait()
		}
		for _, name := range []string{"ann", "ben"} {
			_, err := f.Register(ctx, name)
			f.must(err)
		}
		h.want(t, "agent_registered ann", "agent_online ann", "agent_registered ben", "agent_online ben")
		pass(30 * time.Second)
		f.registry.see("ben", nil)
		pass(30 * time.Second)
		h.want(t)
		pass(time.Second)
		h.want(t, "agent_offline ann")
		pass(29 * time.Second)
		h.want(t)
		pass(time.Second)
		h.want(t, "agent_offline ben")
		pass(time.Hour)
		f.registry.see("ann", nil)
		h.want(t, "agent_online ann")
		pass(59 * time.Second)
		h.want(t)
		f.Reload(ReloadOptions{Heartbeat: 30 * time.Second})
		synctest.Wait()
		h.want(t, "agent_offline ann")
	})
}

// Who was online when the broker ended, and still would be, did not come.
func TestPresenceAtTheStart(t *testing.T) {
	f := newFixture(t)
	r := newRegistry([]store.Agent{{Name: "ann", LastSeen: start}, {Name: "ben", LastSeen: start.Add(-time.Hour)}}, f.clock, time.Minute)
	h := &heard{}
	r.tell = func(events ...Event) { h.tell(events[0]) }
	r.see("ann", nil)
	r.see("ben", nil)
	h.want(t, "agent_online ben")
}

func TestSubscriptionsEnd(t *testing.T) {
	hub := NewHub()
	first, second := &heard{}, &heard{}
	cancel := hub.Subscribe(first.tell)
	cancelSecond := hub.Subscribe(second.tell)
	event := Event{Kind: AgentOnline, Agent: "ann", At: start}
	hub.tell(event)
	cancel()
	cancel()
	hub.tell(event)
	cancelSecond()
	hub.tell(event)
	first.want(t, "agent_online ann")
	second.want(t, "agent_online ann", "agent_online ann")
	if n := len(*hub.subscribers.Load()); n != 0 {
		t.Errorf("%d subscribers are left", n)
	}
}

// Events come one at a time, and none once a subscription was cancelled.
func TestEventsDoNotOverlap(t *testing.T) {
	hub := NewHub()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				busy, over := false, false // written without a lock: the race detector looks
				cancel := hub.Subscribe(func(Event) {
					if busy || over {
						t.Error("events overlap, or come after the end")
					}
					busy = true
					busy = false
				})
				hub.tell(Event{Kind: AgentOnline})
				hub.Observe([]store.Event{{Kind: store.EventAccepted}})
				cancel()
				over = true
			}
		})
	}
	wait.Wait()
}

// A kind of the store that is none of the hub's is passed over.
func TestUnknownKindsAreNotTold(t *testing.T) {
	hub, h := NewHub(), &heard{}
	defer hub.Subscribe(h.tell)()
	followed := 0
	hub.Follow(func(events []store.Event) { followed += len(events) })
	hub.Observe([]store.Event{{Kind: "of a later version"}, {Kind: store.EventDone, ID: "m", At: start}})
	h.want(t, "message_acked m")
	if followed != 2 {
		t.Errorf("followers saw %d events, want 2", followed)
	}
}

// The next to go is the one that was seen longest ago.
func TestNextToGo(t *testing.T) {
	var agents []store.Agent
	for i := range 20 {
		agents = append(agents, store.Agent{Name: fmt.Sprint("agent-", i), LastSeen: start.Add(-time.Duration(i) * time.Second)})
	}
	r := newRegistry(agents, storetest.NewClock(start), time.Minute)
	for range 10 { // a map has no order
		if next, some := r.lapse(); !some || next != 41*time.Second {
			t.Errorf("the next goes in %v, %v", next, some)
		}
	}
	if _, some := newRegistry(nil, storetest.NewClock(start), time.Minute).lapse(); some {
		t.Error("somebody goes where nobody is")
	}
}
