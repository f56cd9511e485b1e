package storetest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// machine makes the same calls to a store and to the model. After each, what
// can be seen of the two must be equal.
type machine struct {
	*fixture
	model *model
	// sent are the messages sent, in order; grants the leases as Lease
	// answered them; settled the settlements that were answered, and cursors
	// those that Poll answered.
	sent    []agentrelay.Message
	grants  []store.Leased
	settled []store.Settlement
	cursors []string
	// woken is how often each agent must have been woken.
	woken map[string]int
	// sweeping says that what is to be checked is a sweep.
	sweeping bool
	// keys counts the keys that were made.
	keys int
	// began is the monotonic time at start.
	began time.Duration
}

// machineFlags say how many sequences of calls are tried, and how long they are
// on average, where the flags still have rapid's own defaults. With the race
// detector a call takes about a hundredth of a second.
var machineFlags = []struct{ name, rapids, ours string }{
	{"rapid.checks", "100", "25"},
	{"rapid.steps", "30", "50"},
}

func runMachine(t *testing.T, open Opener) {
	for _, f := range machineFlags {
		if flag.Lookup(f.name).Value.String() == f.rapids {
			if err := flag.Set(f.name, f.ours); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = flag.Set(f.name, f.rapids) })
		}
	}
	parent := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(parent, "store")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		made := 0
		o := store.Options{
			TTL:            rapid.SampledFrom([]time.Duration{ttl, 2 * time.Hour}).Draw(t, "TTL"),
			MaxAttempts:    rapid.IntRange(1, 2).Draw(t, "MaxAttempts"),
			MaxQueued:      rapid.SampledFrom([]int{1000, 4, 2}).Draw(t, "MaxQueued"),
			MaxQueuedBytes: rapid.SampledFrom([]int64{1 << 20, 150, 100}).Draw(t, "MaxQueuedBytes"),
			NewID: func() string {
				made++
				return fmt.Sprint("made-", made)
			},
		}
		m := &machine{fixture: openFixture(t, open, dir, o), woken: map[string]int{}}
		m.began = m.clock.Elapsed()
		m.model = newModel(m.clock, m.store.Epoch(), o)
		m.seen(ann, start)
		m.seen(ben, start)
		t.Repeat(m.actions())
	})
}

// actions returns each action as often as its weight says.
func (m *machine) actions() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": m.check}
	for _, a := range []struct {
		name   string
		weight int
		do     func(*rapid.T)
	}{
		{"register", 1, m.register},
		{"send", 4, m.send},
		{"send again", 1, m.sendAgain},
		{"poll", 2, m.poll},
		{"delivered", 1, m.delivered},
		{"lease", 5, m.lease},
		{"settle", 4, m.settle},
		{"settle again", 1, m.settleAgain},
		{"renew", 1, m.renew},
		{"release", 2, m.release},
		{"acknowledge", 1, m.acknowledge},
		{"messages", 1, m.messages},
		{"query", 1, m.query},
		{"requeue", 1, m.requeue},
		{"cancel", 1, m.cancel},
		{"administer", 2, m.administer},
		{"advance", 3, m.advance},
		{"jump", 1, m.jump},
		{"reopen", 1, m.reopen},
	} {
		for i := range a.weight {
			all[fmt.Sprintf("%d %s", i, a.name)] = a.do // rapid prefers names that sort first
		}
	}
	return all
}

// check compares what each agent sees.
func (m *machine) check(*rapid.T) {
	for _, agent := range []string{ann, ben, zoe, ghost} {
		all := store.PollQuery{Agent: agent, Limit: everything, MaxBytes: everything}
		m.wantEqual("inbox of "+agent, m.pollPage(all), m.model.poll(all))
		m.wantEqual("history of "+agent, m.blankWords(m.fixture.query(store.Filter{Agent: agent})), m.allOf(agent))
	}
	for _, r := range m.model.byFirst() {
		if r.Status == agentrelay.StatusQueued && r.position != r.first { // queued again
			q := store.PollQuery{Agent: r.To, Since: r.ID, Limit: everything, MaxBytes: everything}
			m.wantEqual("page after "+r.ID, m.pollPage(q), m.model.poll(q))
			break
		}
	}
	agents, err := m.store.Agents(ctx)
	m.must(err)
	m.wantEqual("agents", agents, m.model.registered())
	all, err := m.store.Backlog(ctx, "")
	m.must(err)
	m.wantEqual("backlog", all, m.model.backlog())
	one, err := m.store.Backlog(ctx, ben)
	m.must(err)
	m.wantEqual("backlog of ben", one, map[string]store.Backlog{ben: all[ben]})
}

func (m *machine) allOf(agent string) []agentrelay.Message {
	return m.blankWords(m.model.query(store.Filter{Agent: agent, Limit: everything, MaxBytes: everything}))
}

// blankWords removes what the contract leaves to the store: its words about a
// message that it gave up.
func (m *machine) blankWords(list []agentrelay.Message) []agentrelay.Message {
	for i := range list {
		if r := m.model.rows[list[i].ID]; r != nil && r.givenUp {
			list[i].Error = ""
		}
	}
	return list
}

// wantSame checks that store and model refuse a call alike. ok is false if
// they do.
func (m *machine) wantSame(err, want error) (ok bool) {
	m.testing.Helper()
	if want == nil {
		m.must(err)
		return true
	}
	if !errors.Is(err, want) {
		m.testing.Fatalf("got error %v, want %v", err, want)
	}
	return false
}

// finish takes from the store what the contract leaves to it about the call
// just made, the ids of receipts, and checks what was observed.
func (m *machine) finish() {
	m.testing.Helper()
	for _, r := range m.model.made {
		var found []agentrelay.Message
		for _, msg := range m.receipts(r.row.To, r.about.ID) {
			if m.model.rows[msg.ID] == nil {
				found = append(found, msg)
			}
		}
		if len(found) != 1 {
			m.testing.Fatalf("%d new receipts about %s, want 1", len(found), r.about.ID)
		}
		m.wantReceiptBody(found[0].Body, r.failed, r.text)
		m.model.named(r, found[0].ID, found[0].Body)
	}
	m.wantObserved()
	for agent := range m.model.queued {
		m.woken[agent]++
	}
	for _, agent := range []string{ann, ben, zoe, ghost} {
		m.wantWoken(agent, m.woken[agent])
	}
	m.model.begin()
}

// wantObserved checks the events of the call just made. Those of a sweep may
// come in any order.
func (m *machine) wantObserved() {
	m.testing.Helper()
	var want []store.Event
	for _, s := range m.model.steps {
		e := s.event
		e.ID, e.From, e.To, e.TS = s.row.ID, s.row.From, s.row.To, s.row.TS
		e.Type, e.MessageKind = s.row.Type, s.row.Kind
		want = append(want, e)
	}
	got := m.observed.take()
	if m.sweeping {
		sortEvents(got)
		sortEvents(want)
	}
	m.wantEqual("events", got, want)
}

func sortEvents(list []store.Event) {
	slices.SortFunc(list, func(a, b store.Event) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Kind, b.Kind))
	})
}

// sweep sweeps both. In which order the store queues what is due is its own
// choice, which the model takes over.
func (m *machine) sweep() {
	m.testing.Helper()
	next := m.fixture.sweep()
	m.model.sweep()
	queued := maps.Clone(m.model.queued)
	m.sweeping = true
	m.finish()
	m.sweeping = false
	for agent, rows := range queued {
		before := m.model.inbox(agent).position - int64(len(rows))
		ids := idsOf(m.fixture.poll(agent, m.model.cursor(agent, before)).Messages)
		var want []string
		for _, r := range rows {
			want = append(want, r.ID)
			place := before + 1 + int64(slices.Index(ids, r.ID))
			if r.first == r.position {
				r.first = place
			}
			r.position = place
		}
		slices.Sort(want)
		m.wantEqual("queued by the sweep", slices.Sorted(slices.Values(ids)), want)
	}
	if due, ok := m.model.nextDue(); ok && next > max(due, time.Millisecond) {
		m.testing.Fatalf("the next sweep is in %v, but something is due in %v", next, due)
	}
}
