package storetest

import (
	"fmt"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Settlements that examples expect.
var (
	completed = store.Settled{Status: agentrelay.StatusDone}
	retried   = store.Settled{Status: agentrelay.StatusQueued, Attempts: 1}
)

var leaseExamples = []example{
	{"the oldest are taken, each under an id of its own", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.clock.Advance(time.Second)
		list := f.leaseAll(ben, 2, time.Minute)
		f.wantEqual("leased", leasedIDs(list), []string{"m1", "m2"})
		for _, m := range list {
			f.wantEqual("lease", [...]any{m.Status, m.Attempts, m.LeaseUntil, m.DeliveredAt, m.First},
				[...]any{agentrelay.StatusLeased, 0, start.Add(time.Second + time.Minute), start.Add(time.Second), true})
		}
		if list[0].LeaseID == "" || list[0].LeaseID == list[1].LeaseID {
			f.testing.Fatalf("lease ids %q and %q are not two ids", list[0].LeaseID, list[1].LeaseID)
		}
		f.wantInbox(ben, "m3")
		f.wantEqual("the rest", leasedIDs(f.leaseAll(ben, 9, time.Minute)), []string{"m3"})
		f.wantEqual("nothing left", len(f.leaseAll(ben, 9, time.Minute)), 0)
		f.wantEqual("of nobody", len(f.leaseAll(ghost, 9, time.Minute)), 0)
	}},
	{"oldest means least current position", func(f *fixture) {
		f.send("m1", "m2")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, retried)
		f.wantEqual("leased", leasedIDs(f.leaseAll(ben, 2, time.Minute)), []string{"m2", "m1"})
	}},
	{"only what is returned is leased", func(f *fixture) {
		f.send("m1", "m2", "m3") // 13 bytes each
		list, err := f.store.Lease(ctx, store.LeaseRequest{Agent: ben, Limit: 9, MaxBytes: 26, For: time.Minute})
		f.must(err)
		f.wantEqual("26 bytes", leasedIDs(list), []string{"m1", "m2"})
		f.wantInbox(ben, "m3")
		list, err = f.store.Lease(ctx, store.LeaseRequest{Agent: ben, Limit: 9, MaxBytes: 1, For: time.Minute})
		f.must(err)
		f.wantEqual("at least one", leasedIDs(list), []string{"m3"})
	}},
	{"completed is done", func(f *fixture) {
		f.send("m1")
		m := f.lease(time.Minute)
		f.wantSettled(m, agentrelay.OutcomeCompleted, completed)
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, time.Time{})
		f.clock.Advance(time.Hour)
		f.sweep()
		f.wantInbox(ben)
		f.wantNoReceipt(ann, "m1")
	}},
	{"completed sends the receipt that was asked for, once", func(f *fixture) {
		m := message("m1")
		m.Ack = true
		f.enqueue(m)
		leased := f.lease(time.Minute)
		f.wantSettled(leased, agentrelay.OutcomeCompleted, completed)
		f.wantSettled(leased, agentrelay.OutcomeCompleted, completed)
		r := f.wantReceipt(ann, ben, "m1", "")
		f.wantInbox(ann, r.ID)
		f.wantWoken(ann, 1)
		f.wantEqual("receipt of a later ack", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true}), r.ID)
		f.wantState("m1", agentrelay.StatusDone, 0)
	}},
	{"a receipt can be leased, and is about nothing itself", func(f *fixture) {
		f.send("m1")
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		list := f.leaseAll(ann, 1, time.Minute)
		f.wantEqual("leased", leasedIDs(list), []string{id})
		f.wantSettled(list[0], agentrelay.OutcomeCompleted, completed)
		f.wantNoReceipt(ben, id)
	}},
	{"retry queues it again behind the others", func(f *fixture) {
		f.send("m1", "m2")
		f.unseen(ben)
		m := f.lease(time.Minute)
		f.wantSettled(m, agentrelay.OutcomeRetry, retried)
		f.wantState("m1", agentrelay.StatusQueued, 1)
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, time.Time{})
		f.wantInbox(ben, "m2", "m1")
		f.wantEqual("seen again", idsOf(f.unseen(ben)), []string{"m1"})
		f.wantEqual("cursor", f.cursors[ben], f.cursor(ben, 3))
		f.wantWoken(ben, 3)
		f.wantEqual("delivered", f.find(ben, "m1").DeliveredAt, start)
	}},
	{"the error of a retry is kept until there is another", func(f *fixture) {
		f.send("m1")
		for i, text := range []string{"", "first", "", "second \"\x01"} {
			_, err := f.store.Settle(ctx, store.Settlement{
				Agent: ben, ID: "m1", LeaseID: f.lease(time.Minute).LeaseID, Outcome: agentrelay.OutcomeRetry, Error: text,
			})
			f.must(err)
			want := []string{"", "first", "first"}
			if i < len(want) {
				f.wantEqual("error", f.find(ben, "m1").Error, want[i])
			}
		}
		f.wantState("m1", agentrelay.StatusFailed, 4)
	}},
	{"spent attempts fail the message and tell its sender", func(f *fixture) {
		f.send("m1")
		for i := range 3 {
			f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusQueued, Attempts: i + 1})
		}
		f.wantNoReceipt(ann, "m1")
		m := f.lease(time.Minute)
		f.wantSettled(m, agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusFailed, Attempts: 4})
		f.wantSettled(m, agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusFailed, Attempts: 4})
		f.wantState("m1", agentrelay.StatusFailed, 4)
		r := f.wantReceipt(ann, ben, "m1", "undelivered: ")
		f.wantWoken(ann, 1)
		f.wantInbox(ben)
		f.wantEqual("receipt of a later ack", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"}), r.ID)
		f.wantState("m1", agentrelay.StatusFailed, 4)
	}},
	{"a receipt whose attempts are spent is nobody's concern", func(f *fixture) {
		f.send("m1")
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		for range 4 {
			_, err := f.settle(f.leaseAll(ann, 1, time.Minute)[0], agentrelay.OutcomeRetry)
			f.must(err)
		}
		f.wantEqual("status", f.find(ann, id).Status, agentrelay.StatusFailed)
		f.wantNoReceipt(ben, id)
		f.wantInbox(ben)
	}},
	{"what ended a lease, repeated, answers as before", func(f *fixture) {
		f.send("m1")
		first := f.lease(time.Minute)
		f.wantSettled(first, agentrelay.OutcomeRetry, retried)
		second := f.lease(time.Minute)
		f.wantSettled(first, agentrelay.OutcomeRetry, retried)
		f.wantState("m1", agentrelay.StatusLeased, 1)
		f.wantSettled(second, agentrelay.OutcomeCompleted, store.Settled{Status: agentrelay.StatusDone, Attempts: 1})
		for range 2 {
			f.wantSettled(first, agentrelay.OutcomeRetry, retried)
			f.wantSettled(second, agentrelay.OutcomeCompleted, store.Settled{Status: agentrelay.StatusDone, Attempts: 1})
		}
		f.reopen(0)
		f.wantSettled(first, agentrelay.OutcomeRetry, retried)
		for _, c := range []struct {
			lease   store.Leased
			outcome agentrelay.Outcome
		}{{first, agentrelay.OutcomeCompleted}, {second, agentrelay.OutcomeRetry}} {
			_, err := f.settle(c.lease, c.outcome)
			f.wantError(err, agentrelay.ErrNotLeased)
		}
		f.wantState("m1", agentrelay.StatusDone, 1)
	}},
	{"settle and renew check message, agent and lease in this order", func(f *fixture) {
		f.send("m1", "m2")
		leased := f.lease(time.Minute)
		for _, c := range []struct {
			name             string
			agent, id, lease string
			want             error
		}{
			{"unknown message", zoe, "unknown", "other", agentrelay.ErrNoSuchMessage},
			{"another agent, not leased", zoe, "m2", "other", agentrelay.ErrForbidden},
			{"another agent", zoe, "m1", leased.LeaseID, agentrelay.ErrForbidden},
			{"the sender", ann, "m1", leased.LeaseID, agentrelay.ErrForbidden},
			{"not leased", ben, "m2", leased.LeaseID, agentrelay.ErrNotLeased},
			{"another lease", ben, "m1", "other", agentrelay.ErrLeaseMismatch},
			{"no lease", ben, "m1", "", agentrelay.ErrLeaseMismatch},
		} {
			f.testing.Logf("%s", c.name)
			for _, outcome := range []agentrelay.Outcome{agentrelay.OutcomeCompleted, agentrelay.OutcomeRetry} {
				_, err := f.store.Settle(ctx, store.Settlement{Agent: c.agent, ID: c.id, LeaseID: c.lease, Outcome: outcome})
				f.wantError(err, c.want)
			}
			_, err := f.store.Renew(ctx, store.Renewal{Agent: c.agent, ID: c.id, LeaseID: c.lease, For: time.Hour})
			f.wantError(err, c.want)
		}
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, start.Add(time.Minute))
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.wantSettled(leased, agentrelay.OutcomeCompleted, completed)
		_, err := f.store.Settle(ctx, store.Settlement{Agent: zoe, ID: "m1", LeaseID: leased.LeaseID, Outcome: agentrelay.OutcomeCompleted})
		f.wantError(err, agentrelay.ErrForbidden)
	}},
	{"a stale lease changes nothing", func(f *fixture) {
		f.send("m1")
		stale := f.lease(time.Minute)
		f.wantSettled(stale, agentrelay.OutcomeRetry, retried)
		f.lease(time.Hour)
		_, err := f.settle(stale, agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrLeaseMismatch)
		_, err = f.renew(stale, time.Minute)
		f.wantError(err, agentrelay.ErrLeaseMismatch)
		f.must(f.store.Release(ctx, ben, []store.Leased{stale}))
		f.wantState("m1", agentrelay.StatusLeased, 1)
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, start.Add(time.Hour))
	}},
	{"a renewed lease lasts from now, longer or shorter", func(f *fixture) {
		f.send("m1")
		m := f.lease(time.Minute)
		f.clock.Advance(59 * time.Second)
		for _, d := range []time.Duration{time.Hour, 10 * time.Second} {
			until, err := f.renew(m, d)
			f.must(err)
			f.wantEqual("until", until, f.clock.Now().Add(d))
			f.wantEqual("shown", f.find(ben, "m1").LeaseUntil, until)
		}
		f.clock.Advance(10*time.Second - time.Millisecond)
		f.wantInbox(ben)
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben, "m1")
	}},
	{"lease and receipt ids are made by NewID", func(f *fixture) {
		f.must(f.store.Close())
		made := 0
		o := f.options
		o.NewID = func() string {
			made++
			return fmt.Sprint("id-", made)
		}
		f.store = f.open(f.testing, f.dir, o)
		f.send("m1", "m2")
		for _, m := range f.leaseAll(ben, 2, time.Minute) {
			if !strings.HasPrefix(m.LeaseID, "id-") {
				f.testing.Errorf("lease id %q was not made by NewID", m.LeaseID)
			}
		}
		if id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"}); !strings.HasPrefix(id, "id-") {
			f.testing.Errorf("receipt id %q was not made by NewID", id)
		}
	}},
}
