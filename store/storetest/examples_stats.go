package storetest

import (
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var statsExamples = []example{
	{"an empty store has nothing queued", func(f *fixture) {
		got := f.stats()
		f.wantEqual("backlog", got, store.Stats{})
	}},
	{"what is queued and leased is counted over all inboxes, and the oldest named", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(time.Second)
		f.send("m2")
		f.clock.Advance(time.Second)
		other := message("m3")
		other.To = zoe
		f.enqueue(other)
		f.wantEqual("all queued", f.stats(), store.Stats{Queued: 3, OldestQueued: start})
		m := f.lease(time.Minute)
		f.wantEqual("one leased", f.stats(), store.Stats{Queued: 2, Leased: 1, OldestQueued: start.Add(time.Second)})
		f.wantSettled(m, agentrelay.OutcomeRetry, retried)
		f.wantEqual("queued again, as old as before", f.stats(), store.Stats{Queued: 3, OldestQueued: start})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true})
		f.wantEqual("with two receipts", f.stats(), store.Stats{Queued: 3, OldestQueued: start.Add(2 * time.Second)})
		f.reopen(0)
		f.wantEqual("after a restart", f.stats(), store.Stats{Queued: 3, OldestQueued: start.Add(2 * time.Second)})
	}},
	{"what has expired is not queued", func(f *fixture) {
		f.send("m1")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.clock.Advance(ttl)
		f.sweep()
		f.wantEqual("backlog", f.stats(), store.Stats{})
	}},
	{"sizes grow with what is stored", func(f *fixture) {
		before, err := f.store.Stats(ctx)
		f.must(err)
		m := message("m1")
		m.Body = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		f.enqueue(m)
		after, err := f.store.Stats(ctx)
		f.must(err)
		if grown := after.DatabaseBytes + after.LogBytes - before.DatabaseBytes - before.LogBytes; grown < 1<<20 {
			f.testing.Errorf("with a message of 1 MiB, %d bytes more", grown)
		}
	}},
}

// stats is the store's, without sizes.
func (f *fixture) stats() store.Stats {
	f.testing.Helper()
	s, err := f.store.Stats(ctx)
	f.must(err)
	s.DatabaseBytes, s.LogBytes = 0, 0
	return s
}
