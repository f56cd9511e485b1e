package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/storetest"
)

func TestNear(t *testing.T) {
	names := []string{"team-lead", "Team_Lead2", "ann", "anna", "x", "y1", "deploy-bot", "deploy-bot-2", "deploybot3", "Deploy_Bot_4"}
	var agents []store.Agent
	for _, name := range names {
		agents = append(agents, store.Agent{Name: name})
	}
	r := newRegistry(agents, storetest.NewClock(start), time.Minute)
	for name, want := range map[string]string{
		"team_lead": "[team-lead Team_Lead2]", "TEAM.LEAD": "[team-lead Team_Lead2]", "teamleed": "[team-lead Team_Lead2]",
		"deploy.bot":  "[deploy-bot Deploy_Bot_4 deploy-bot-2]", // three of four
		"ANN":         "[ann anna]",
		"bob":         "[]", // two of three letters are no misspelling
		"X":           "[x]",
		"z":           "[]",
		"y2":          "[y1]",
		"reviewer":    "[]",
		"-":           "[]",
		"team-leader": "[Team_Lead2 team-lead]", // as near, so by name
	} {
		if got := fmt.Sprint(r.near(name)); got != want {
			t.Errorf("near %s are %s, want %s", name, got, want)
		}
	}
}

func TestPresence(t *testing.T) {
	clock := storetest.NewClock(start)
	r := newRegistry([]store.Agent{{Name: "never"}, {Name: "ann", LastSeen: start}}, clock, time.Minute)
	if p := r.peer("never"); p.Online || !p.LastSeen.IsZero() {
		t.Errorf("an agent that was never seen is %+v", p)
	}
	clock.Advance(time.Minute)
	if p := r.peer("ann"); !p.Online || !p.LastSeen.Equal(start) {
		t.Errorf("within the heartbeat ann is %+v", p)
	}
	clock.Advance(time.Millisecond)
	if p := r.peer("ann"); p.Online {
		t.Errorf("after the heartbeat ann is %+v", p)
	}
	r.see("ann", nil)
	if p := r.peer("ann"); !p.Online || !p.LastSeen.Equal(clock.Now()) {
		t.Errorf("seen again ann is %+v", p)
	}
	// Claimed names take no memory.
	for i := range 1000 {
		r.see(fmt.Sprint("claimed-", i), nil)
	}
	if n := len(r.agents); n != 2 {
		t.Errorf("%d agents are remembered, 2 are registered", n)
	}
}

// What the broker itself provides is online while it says so, whatever the
// heartbeat.
func TestHold(t *testing.T) {
	f := newFixture(t)
	f.must(f.Introduce(ctx, "chat"))
	f.must(f.Introduce(ctx, "chat"))
	f.Hold("unknown", true)
	f.Hold("chat", false)
	peer := func() (p agentrelay.Peer) {
		for _, p = range f.Peers() {
			if p.Agent == "chat" {
				return p
			}
		}
		t.Fatal("it is no peer")
		return p
	}
	f.clock.Advance(time.Second)
	if p := peer(); p.Online || !p.LastSeen.IsZero() {
		t.Errorf("before it came it is %+v", p)
	}
	f.Hold("chat", true)
	f.clock.Advance(time.Hour)
	if p := peer(); !p.Online || !p.LastSeen.Equal(f.clock.Now()) {
		t.Errorf("while it is there it is %+v", p)
	}
	if next, some := f.registry.lapse(); some {
		t.Errorf("it is looked for again in %v", next)
	}
	f.Hold("chat", false)
	left := f.clock.Now()
	f.clock.Advance(time.Second)
	f.Hold("chat", false)
	if p := peer(); p.Online || !p.LastSeen.Equal(left) {
		t.Errorf("after it left it is %+v", p)
	}
	if len(f.Peers()) != 1 {
		t.Errorf("the peers are %v", f.Peers())
	}
}

// What is to be persisted comes up once a minute, or at the end, and a clock
// that was set back is no reason to keep quiet.
func TestWhatIsPersisted(t *testing.T) {
	clock := storetest.NewClock(start)
	r := newRegistry([]store.Agent{{Name: "ann", LastSeen: start}}, clock, time.Minute)
	step := func(by time.Duration, older time.Duration, wake bool, want ...time.Time) {
		t.Helper()
		clock.Jump(by)
		r.see("ann", nil)
		woken := len(r.stale) > 0
		if woken {
			<-r.stale
		}
		if woken != wake {
			t.Errorf("after %v: woken is %v", by, woken)
		}
		var got []time.Time
		for _, at := range seen(r.take(older)) {
			got = append(got, at)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("after %v: persisted %v, want %v", by, got, want)
		}
	}
	step(0, 0, false)
	step(59*time.Second, persistEvery, false)
	step(time.Second, persistEvery, true, start.Add(time.Minute))
	step(time.Second, persistEvery, false)
	step(0, 0, false, start.Add(61*time.Second))
	step(0, 0, false)
	step(-time.Hour, persistEvery, true, start.Add(61*time.Second-time.Hour))
}

// seen is the part of what was taken that is about agents.
func seen(seen map[string]time.Time, _ map[store.KeyName]time.Time) map[string]time.Time { return seen }
