package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var eventExamples = []example{
	{"a stored message is accepted, a duplicate or a refusal is nothing", func(f *fixture) {
		f.clock.Advance(time.Second)
		f.send("m1")
		f.wantEqual("event", f.observed.take(), []store.Event{{
			Kind: store.EventAccepted, ID: "m1", From: ann, To: ben, Type: agentrelay.TypeMessage, MessageKind: agentrelay.KindMessage,
			TS: start.Add(time.Second), At: start.Add(time.Second),
		}})
		f.clock.Advance(time.Second)
		f.send("m1")
		other := message("m1")
		other.Body = []byte(`1`)
		_, err := f.store.Enqueue(ctx, other)
		f.wantError(err, agentrelay.ErrIDConflict)
		nobody := message("m2")
		nobody.To = ghost
		_, err = f.store.Enqueue(ctx, nobody)
		f.wantError(err, agentrelay.ErrNoSuchAgent)
		f.must(f.store.Register(ctx, ghost))
		f.must(f.store.Touch(ctx, map[string]time.Time{ann: f.clock.Now()}))
		f.must(f.store.Probe(ctx))
		f.wantEvents()
	}},
	{"the first hand-over is delivered, a later one is nothing", func(f *fixture) {
		f.send("m1", "m2")
		f.forget()
		f.poll(ben, "")
		f.wantEvents()
		f.clock.Advance(time.Minute)
		f.must(f.store.Delivered(ctx, []string{"m1", "unknown", "m1"}, start.Add(time.Second)))
		f.wantEqual("event", f.observed.take(), []store.Event{{
			Kind: store.EventDelivered, ID: "m1", From: ann, To: ben, Type: agentrelay.TypeMessage, MessageKind: agentrelay.KindMessage,
			TS: start, At: start.Add(time.Second),
		}})
		f.must(f.store.Delivered(ctx, []string{"m1"}, f.clock.Now()))
		f.wantEvents()
		f.leaseAll(ben, 2, time.Minute)
		f.wantEvents("delivered m2, leased")
		f.must(f.store.Delivered(ctx, []string{"m2"}, f.clock.Now()))
		f.wantEvents()
	}},
	{"an acknowledgement ends the message and accepts the receipt, once", func(f *fixture) {
		f.send("m1", "m2")
		f.lease(time.Minute)
		f.forget()
		f.clock.Advance(time.Second)
		for range 2 {
			f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
			f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true, Error: "no"})
		}
		f.wantEqual("at", f.observed.events[0].At, start.Add(time.Second))
		f.wantEvents("done m1", "accepted receipt of m1", "failed m2", "accepted receipt of m2")
		_, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: zoe, ID: "m1"})
		f.wantError(err, agentrelay.ErrForbidden)
		f.wantEvents()
	}},
	{"the late receipt of a message that has ended is all that is new", func(f *fixture) {
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeCompleted, completed)
		f.wantEvents("accepted m1", "delivered m1, leased", "done m1")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantEvents("accepted receipt of m1")
	}},
	{"a settlement is told once, with the receipt that was asked for", func(f *fixture) {
		m := message("m1")
		m.Ack = true
		f.enqueue(m)
		f.send("m2")
		list := f.leaseAll(ben, 2, time.Minute)
		f.forget()
		for range 2 {
			f.wantSettled(list[0], agentrelay.OutcomeCompleted, completed)
			f.wantSettled(list[1], agentrelay.OutcomeRetry, retried)
		}
		f.wantEvents("done m1", "accepted receipt of m1", "requeued m2")
		_, err := f.settle(list[1], agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantEvents()
	}},
	{"leasing again and renewing are no steps", func(f *fixture) {
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, retried)
		f.forget()
		m := f.lease(time.Minute)
		_, err := f.renew(m, time.Hour)
		f.must(err)
		f.wantEvents()
	}},
	{"spent attempts fail a message, and say so", func(f *fixture) {
		f.options.MaxAttempts = 1
		f.reopen(0)
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, retried)
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusFailed, Attempts: 2})
		f.wantEvents("accepted m1", "delivered m1, leased", "requeued m1", "failed m1, given up", "accepted receipt of m1")
	}},
	{"a lease that ran out is told by whoever finds it", func(f *fixture) {
		for _, c := range []struct {
			id  string
			end func()
		}{
			{"m1", func() { f.poll(ben, "") }},
			{"m2", func() { f.sweep() }},
			{"m3", func() {
				_, _ = f.store.Settle(ctx, store.Settlement{Agent: ben, ID: "m3", Outcome: agentrelay.OutcomeRetry})
			}},
			{"m4", func() { _, _ = f.store.Renew(ctx, store.Renewal{Agent: ben, ID: "m4", For: time.Hour}) }},
			{"m5", func() {
				f.must(f.store.Release(ctx, ben, []store.Leased{{Message: agentrelay.Message{ID: "m5"}, First: true}}))
			}},
		} {
			f.send(c.id)
			f.lease(time.Minute)
			f.forget()
			f.clock.Advance(time.Minute)
			c.end()
			f.wantEvents("requeued " + c.id)
			c.end()
			f.wantEvents()
			f.acknowledge(store.Acknowledgement{Agent: ben, ID: c.id})
		}
		f.send("m6", "m7")
		f.leaseAll(ben, 1, time.Minute)
		f.clock.Advance(time.Minute)
		f.forget()
		f.leaseAll(ben, 1, time.Minute)
		f.wantEvents("requeued m6", "delivered m7, leased")
	}},
	{"a lease given back makes the hand-over void that it recorded", func(f *fixture) {
		f.send("m1", "m2")
		f.must(f.store.Delivered(ctx, []string{"m2"}, start))
		list := f.leaseAll(ben, 2, time.Minute)
		f.forget()
		for range 2 {
			f.must(f.store.Release(ctx, ben, list))
		}
		f.wantEvents("requeued m1, undelivered", "requeued m2")
		f.leaseAll(ben, 2, time.Minute)
		f.wantEvents("delivered m1, leased")
	}},
	{"so does one given back past its message's time", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl - time.Minute)
		m := f.lease(time.Hour)
		f.clock.Advance(time.Minute)
		f.forget()
		f.must(f.store.Release(ctx, ben, []store.Leased{m}))
		f.wantEvents("expired m1, undelivered", "accepted receipt of m1")
		f.sweep()
		f.wantEvents()
	}},
	{"expiry is told when it is recorded, with the receipt for the sender", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl)
		f.forget()
		f.wantInbox(ben)
		f.wantState("m1", agentrelay.StatusExpired, 0)
		f.wantEvents()
		f.sweep()
		f.wantEvents("expired m1", "accepted receipt of m1")
		f.sweep()
		f.wantEvents()
	}},
	{"the expiry of one that was handed over, or of a receipt, comes alone", func(f *fixture) {
		f.send("m1", "m2")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.clock.Advance(ttl)
		f.forget()
		f.sweep()
		f.wantEqual("events", slices.Sorted(slices.Values(f.observedShort())), []string{"expired m1", "expired receipt of m2"})
	}},
	{"a lease that ends past its message's time expires it", func(f *fixture) {
		f.send("m1", "m2")
		f.clock.Advance(ttl - time.Minute)
		list := f.leaseAll(ben, 2, 2*time.Minute)
		f.clock.Advance(time.Minute)
		f.forget()
		f.sweep()
		f.wantEvents()
		f.wantSettled(list[0], agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusExpired, Attempts: 1})
		f.wantEvents("expired m1")
		f.clock.Advance(time.Minute)
		f.poll(ben, "")
		f.wantEvents("expired m2")
	}},
	{"the late end of an expired message is told", func(f *fixture) {
		f.send("m1")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.clock.Advance(ttl)
		f.sweep()
		f.forget()
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantEvents("done m1", "accepted receipt of m1")
	}},
	{"erasure and removal are no steps", func(f *fixture) {
		f.send("m1")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.clock.Advance(ttl)
		f.sweep()
		f.forget()
		f.clock.Advance(store.EraseAfter)
		f.sweep()
		f.clock.Advance(store.TombstoneTTL)
		f.sweep()
		f.wantEqual("known", f.known(ben, "m1"), []string{})
		f.wantEvents()
	}},
	{"an expiry taken back queues the message again", func(f *fixture) {
		f.send("m1", "m2")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.clock.Jump(8 * 24 * time.Hour)
		f.sweep()
		f.forget()
		f.clock.Jump(-8 * 24 * time.Hour)
		f.sweep()
		f.wantEqual("events", slices.Sorted(slices.Values(f.observedShort())), []string{"requeued m1", "requeued receipt of m2"})
	}},
	{"what ran out while the store was closed is told after the start", func(f *fixture) {
		f.send("m1")
		f.lease(time.Minute)
		f.forget()
		f.reopen(time.Hour)
		f.wantEvents()
		f.clock.Advance(store.LeaseGrace)
		f.sweep()
		f.wantEvents("requeued m1")
	}},
	{"an operation that fails is not told, those beside it are", func(f *fixture) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				m := message(fmt.Sprint("m", i))
				if i%2 == 0 {
					m.To = ghost
				}
				_, _ = f.store.Enqueue(ctx, m)
			})
		}
		all.Wait()
		got := map[string]int{}
		for _, e := range f.observed.take() {
			got[e.To]++
		}
		f.wantEqual("accepted", got, map[string]int{ben: 20})
	}},
	{"calls of Observe follow each other in the order of positions", func(f *fixture) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 10 {
					_, _ = f.store.Enqueue(ctx, message(fmt.Sprint("m", i, "-", j)))
				}
			})
		}
		all.Wait()
		var got []string
		for _, e := range f.observed.take() {
			got = append(got, e.ID)
		}
		f.wantInbox(ben, got...)
	}},
	{"commits are told, with what they were", func(f *fixture) {
		var mu sync.Mutex
		commits, operations := 0, 0
		f.options.Committed = func(c store.Commit) {
			mu.Lock()
			defer mu.Unlock()
			commits++
			operations += c.Operations
			if c.Operations < 1 || c.Took != 0 {
				f.testing.Errorf("a commit was %+v; this clock stands still", c)
			}
		}
		f.reopen(0)
		commits, operations = 0, 0
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { _, _ = f.store.Enqueue(ctx, message(fmt.Sprint("m", i))) })
		}
		all.Wait()
		f.must(f.store.Probe(ctx))
		f.poll(ben, "")
		if operations != 21 || commits < 2 || commits > 21 {
			f.testing.Errorf("21 writes were told as %d operations in %d commits", operations, commits)
		}
	}},
}
