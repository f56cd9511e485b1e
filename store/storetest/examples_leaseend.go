package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var leaseEndExamples = []example{
	{"poll queues again what is due", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.unseen(ben)
		f.leaseAll(ben, 2, time.Minute)
		f.clock.Advance(time.Minute - time.Millisecond)
		f.wantInbox(ben, "m3")
		f.clock.Advance(time.Millisecond)
		again := f.unseen(ben)
		f.wantEqual("seen again", sortedIDs(again), []string{"m1", "m2"})
		f.wantEqual("attempts", []int{again[0].Attempts, again[1].Attempts}, []int{1, 1})
		f.wantEqual("status", again[0].Status, agentrelay.StatusQueued)
		f.wantEqual("cursor", f.cursors[ben], f.cursor(ben, 5))
		f.wantWoken(ben, 4)
		f.reopen(0)
		f.wantState("m1", agentrelay.StatusQueued, 1)
	}},
	{"lease takes what is due, behind the others", func(f *fixture) {
		f.send("m1", "m2")
		first := f.lease(time.Minute)
		f.clock.Advance(time.Minute)
		list := f.leaseAll(ben, 9, time.Minute)
		f.wantEqual("leased", leasedIDs(list), []string{"m2", "m1"})
		f.wantEqual("attempts", list[1].Attempts, 1)
		f.wantEqual("delivered", list[1].DeliveredAt, start)
		_, err := f.settle(first, agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrLeaseMismatch)
	}},
	{"sweep queues again what is due, everywhere", func(f *fixture) {
		f.send("m1")
		other := message("m2")
		other.To = zoe
		f.enqueue(other)
		f.leaseAll(ben, 1, time.Minute)
		f.leaseAll(zoe, 1, time.Hour)
		if next := f.sweep(); next > time.Minute {
			f.testing.Errorf("the next sweep is in %v, want it by the end of the lease", next)
		}
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.clock.Advance(time.Minute)
		f.sweep()
		f.wantWoken(ben, 2)
		f.wantState("m1", agentrelay.StatusQueued, 1)
		f.wantWoken(zoe, 1)
		f.wantInbox(zoe)
		f.wantInbox(ben, "m1")
	}},
	{"an inbox is woken by no other's leases", func(f *fixture) {
		f.send("m1")
		f.lease(time.Minute)
		f.clock.Advance(time.Minute)
		f.wantInbox(zoe)
		f.leaseAll(zoe, 1, time.Minute)
		f.wantState("m1", agentrelay.StatusLeased, 0)
	}},
	{"settling too late ends the lease", func(f *fixture) {
		f.send("m1", "m2")
		f.unseen(ben)
		list := f.leaseAll(ben, 2, time.Minute)
		f.clock.Advance(time.Minute)
		_, err := f.settle(list[0], agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		_, err = f.renew(list[1], time.Minute)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantState("m1", agentrelay.StatusQueued, 1)
		f.wantState("m2", agentrelay.StatusQueued, 1)
		f.wantWoken(ben, 4)
		f.reopen(0)
		f.wantEqual("seen again", idsOf(f.unseen(ben)), []string{"m1", "m2"})
		// A lease that merely ran out was not ended by an outcome.
		_, err = f.settle(list[0], agentrelay.OutcomeRetry)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantState("m1", agentrelay.StatusQueued, 1)
	}},
	{"a late call with another lease ends the lease too", func(f *fixture) {
		f.send("m1")
		stale := f.lease(time.Minute)
		f.clock.Advance(time.Minute)
		f.lease(time.Minute)
		f.clock.Advance(time.Minute)
		_, err := f.settle(stale, agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantState("m1", agentrelay.StatusQueued, 2)
	}},
	{"leases that ran out spend attempts", func(f *fixture) {
		f.send("m1")
		for i := range 4 {
			f.wantEqual("attempts", f.lease(time.Minute).Attempts, i)
			f.clock.Advance(time.Minute)
		}
		f.wantInbox(ben)
		f.wantState("m1", agentrelay.StatusFailed, 4)
		f.wantReceipt(ann, ben, "m1", "undelivered: ")
		f.wantWoken(ann, 1)
	}},
	{"MaxAttempts is how many failures a message survives", func(f *fixture) {
		f.options.MaxAttempts = 1
		f.reopen(0)
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, retried)
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusFailed, Attempts: 2})
	}},
	{"a lease given back is queued again, uncounted", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.unseen(ben)
		list := f.leaseAll(ben, 2, time.Minute)
		f.clock.Advance(time.Second)
		f.must(f.store.Release(ctx, ben, list))
		f.wantInbox(ben, "m3", "m1", "m2")
		f.wantEqual("seen again", idsOf(f.unseen(ben)), []string{"m1", "m2"})
		f.wantState("m1", agentrelay.StatusQueued, 0)
		f.wantEqual("delivered", f.find(ben, "m1").DeliveredAt, time.Time{})
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, time.Time{})
		f.wantWoken(ben, 4)
		_, err := f.settle(list[0], agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.must(f.store.Release(ctx, ben, list))
		f.wantInbox(ben, "m3", "m1", "m2")
		f.must(f.store.Release(ctx, ben, nil))
	}},
	{"a lease given back in place is queued where it was", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		list := f.leaseAll(ben, 2, time.Minute)
		for i := range list {
			list[i].InPlace = true
		}
		f.must(f.store.Release(ctx, ben, list[1:]))
		f.must(f.store.Release(ctx, ben, list[:1]))
		f.wantInbox(ben, "m1", "m2", "m3", "m4")
		f.wantState("m1", agentrelay.StatusQueued, 0)
		f.wantEqual("delivered", f.find(ben, "m1").DeliveredAt, time.Time{})
		f.reopen(0)
		f.wantEqual("leased again", leasedIDs(f.leaseAll(ben, 3, time.Minute)), []string{"m1", "m2", "m3"})
		// What waits since gets a place of its own.
		f.send("m5")
		f.wantInbox(ben, "m4", "m5")
	}},
	{"giving back takes no earlier hand-over away", func(f *fixture) {
		f.send("m1", "m2")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		list := f.leaseAll(ben, 2, time.Minute)
		f.wantEqual("first hand-overs", []bool{list[0].First, list[1].First}, []bool{false, true})
		f.must(f.store.Release(ctx, ben, list))
		f.wantEqual("handed over by a poll", f.find(ben, "m1").DeliveredAt, start)
		f.wantEqual("never handed over", f.find(ben, "m2").DeliveredAt, time.Time{})
		f.clock.Advance(time.Second)
		list = f.leaseAll(ben, 2, time.Minute)
		for _, m := range list {
			f.wantSettled(m, agentrelay.OutcomeRetry, retried)
		}
		f.clock.Advance(time.Second)
		f.must(f.store.Release(ctx, ben, f.leaseAll(ben, 2, time.Minute)))
		f.wantEqual("handed over by an earlier lease", f.find(ben, "m2").DeliveredAt, start.Add(time.Second))
	}},
	{"leases that ended meanwhile are not given back", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4", "m5")
		list := f.leaseAll(ben, 5, time.Minute)
		f.wantSettled(list[0], agentrelay.OutcomeCompleted, completed)
		f.wantSettled(list[1], agentrelay.OutcomeRetry, retried)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m3"})
		unknown := list[0]
		unknown.ID = "unknown"
		f.must(f.store.Release(ctx, ben, slices.Insert(slices.Clone(list[:4]), 0, unknown)))
		f.wantInbox(ben, "m2", "m4")
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantState("m2", agentrelay.StatusQueued, 1)
		f.wantState("m3", agentrelay.StatusDone, 0)
		f.must(f.store.Release(ctx, zoe, list[4:]))
		f.wantState("m5", agentrelay.StatusLeased, 0)
	}},
	{"a lease of what waits for long stays in order", func(f *fixture) {
		for i := range 3 {
			m := message(fmt.Sprint("m", i))
			m.Body = json.RawMessage(fmt.Sprint(i))
			f.enqueue(m)
			f.clock.Advance(24 * time.Hour)
		}
		f.wantEqual("leased", leasedIDs(f.leaseAll(ben, 3, time.Minute)), []string{"m0", "m1", "m2"})
	}},
}

func sortedIDs(list []agentrelay.Message) []string {
	ids := idsOf(list)
	slices.Sort(ids)
	return ids
}
