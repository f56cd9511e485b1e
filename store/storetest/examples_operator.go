package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// wantHidden checks that no way of printing shows a secret.
func (f *fixture) wantHidden(secret string, values ...any) {
	f.testing.Helper()
	for _, v := range values {
		encoded, err := json.Marshal(v)
		f.must(err)
		for _, text := range []string{fmt.Sprint(v), fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v), string(encoded)} {
			if strings.Contains(text, secret) {
				f.testing.Fatalf("the secret prints: %s", text)
			}
		}
	}
}

var operatorExamples = []example{
	{"what was requeued is as if it had just been sent", func(f *fixture) {
		f.send("m1", "m2")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true, Error: "no"})
		first := f.receipts(ann, "m1")[0].ID
		f.unseen(ben)
		f.clock.Advance(time.Hour)
		f.forget()
		f.must(f.store.Requeue(ctx, "m1"))
		f.wantEvents("requeued m1")
		f.wantWoken(ben, 3)
		f.wantEqual("seen", idsOf(f.unseen(ben)), []string{"m1"})
		m := f.find(ben, "m1")
		f.wantEqual("message", [...]any{m.Status, m.Attempts, m.Error, m.TS}, [...]any{agentrelay.StatusQueued, 0, "", start})
		f.wantEqual("leased", leasedIDs(f.leaseAll(ben, 9, time.Minute)), []string{"m2", "m1"})
		second := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantEqual("receipts", sortedIDs(f.receipts(ann, "m1")), sortedIDs([]agentrelay.Message{{ID: first}, {ID: second}}))
		f.wantState("m1", agentrelay.StatusDone, 0)
	}},
	{"attempts begin anew", func(f *fixture) {
		f.send("m1")
		for range 2 {
			for range 4 {
				_, err := f.settle(f.lease(time.Minute), agentrelay.OutcomeRetry)
				f.must(err)
			}
			f.wantState("m1", agentrelay.StatusFailed, 4)
			f.must(f.store.Requeue(ctx, "m1"))
			f.wantState("m1", agentrelay.StatusQueued, 0)
		}
		f.wantEqual("receipts", len(f.receipts(ann, "m1")), 2)
	}},
	{"a lease ends, and what is queued moves to the end", func(f *fixture) {
		f.send("m1", "m2", "m3")
		l := f.lease(24 * time.Hour)
		f.must(f.store.Requeue(ctx, "m2"))
		f.must(f.store.Requeue(ctx, "m1"))
		f.wantInbox(ben, "m3", "m2", "m1")
		_, err := f.settle(l, agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantState("m1", agentrelay.StatusQueued, 0)
	}},
	{"what is done can be done once more", func(f *fixture) {
		m := message("m1")
		m.Ack = true
		f.enqueue(m)
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeCompleted, completed)
		f.must(f.store.Requeue(ctx, "m1"))
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeCompleted, completed)
		f.wantEqual("receipts", len(f.receipts(ann, "m1")), 2)
	}},
	{"a time to live begins anew, until the body is erased", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl)
		f.must(f.store.Requeue(ctx, "m1")) // not swept yet
		f.wantInbox(ben, "m1")
		f.clock.Advance(ttl - time.Millisecond)
		f.wantInbox(ben, "m1")
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben)
		f.sweep()
		f.must(f.store.Requeue(ctx, "m1"))
		f.wantInbox(ben, "m1")
		f.clock.Advance(ttl)
		f.sweep()
		f.clock.Advance(store.EraseAfter)
		f.sweep()
		f.forget()
		f.wantError(f.store.Requeue(ctx, "m1"), agentrelay.ErrBadRequest)
		f.wantError(f.store.Requeue(ctx, "unknown"), agentrelay.ErrNoSuchMessage)
		f.wantInbox(ben)
		f.wantEvents()
	}},
	{"what was requeued outlasts a restart", func(f *fixture) {
		f.send("m1", "m2")
		f.must(f.store.Requeue(ctx, "m1"))
		f.must(f.store.Cancel(ctx, "m2"))
		f.reopen(0)
		f.wantInbox(ben, "m1")
		f.wantState("m2", agentrelay.StatusFailed, 0)
	}},
	{"what was cancelled failed, and the sender is told once", func(f *fixture) {
		f.send("m1", "m2")
		l := f.lease(time.Minute)
		f.forget()
		for range 2 {
			f.must(f.store.Cancel(ctx, "m1"))
			f.must(f.store.Cancel(ctx, "m2"))
		}
		f.wantEvents("failed m1, cancelled", "accepted receipt of m1", "failed m2, cancelled", "accepted receipt of m2")
		for _, id := range []string{"m1", "m2"} {
			f.wantState(id, agentrelay.StatusFailed, 0)
			f.wantEqual("error", f.find(ben, id).Error, "cancelled")
			f.wantEqual("body", string(f.wantReceipt(ann, ben, id, "cancelled").Body), `{"status":"error","error":"cancelled"}`)
		}
		f.wantInbox(ben)
		_, err := f.settle(l, agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		receipt := f.receipts(ann, "m1")[0].ID
		f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"}), receipt)
	}},
	{"what ended otherwise is not cancelled", func(f *fixture) {
		f.send("done", "failed", "expired")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "done"})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "failed", Failed: true, Error: "no"})
		f.wantError(f.store.Cancel(ctx, "done"), agentrelay.ErrBadRequest)
		f.wantError(f.store.Cancel(ctx, "failed"), agentrelay.ErrBadRequest)
		f.wantError(f.store.Cancel(ctx, "unknown"), agentrelay.ErrNoSuchMessage)
		f.clock.Advance(ttl)
		for range 2 {
			f.wantError(f.store.Cancel(ctx, "expired"), agentrelay.ErrBadRequest)
			f.sweep()
		}
		f.wantState("expired", agentrelay.StatusExpired, 0)
	}},
	{"a receipt that was cancelled causes none", func(f *fixture) {
		f.send("m1")
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.must(f.store.Cancel(ctx, id))
		f.wantEqual("status", f.find(ann, id).Status, agentrelay.StatusFailed)
		f.wantNoReceipt(ben, id)
		f.must(f.store.Requeue(ctx, id))
		f.wantInbox(ann, id)
	}},
}
