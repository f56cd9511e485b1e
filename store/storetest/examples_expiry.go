package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var expiryExamples = []example{
	{"a message past its time is never delivered, swept or not", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl - time.Millisecond)
		f.send("m2")
		f.wantInbox(ben, "m1", "m2")
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben, "m2")
		f.wantEqual("leased", leasedIDs(f.leaseAll(ben, 9, time.Minute)), []string{"m2"})
		f.sweep()
		f.wantInbox(ben)
		f.wantState("m1", agentrelay.StatusExpired, 0)
	}},
	{"TTL is the store's, and fixed when the message is stored", func(f *fixture) {
		f.options.TTL = time.Hour
		f.reopen(0)
		f.send("m1")
		f.options.TTL = 2 * time.Hour
		f.reopen(0)
		f.send("m2")
		f.clock.Advance(time.Hour)
		f.wantInbox(ben, "m2")
		f.clock.Advance(time.Hour)
		f.wantInbox(ben)
	}},
	{"the sender of a message that never reached anybody is told, once", func(f *fixture) {
		f.send("m1")
		if next := f.sweep(); next > ttl {
			f.testing.Errorf("the next sweep is in %v, want it by the end of the message's time", next)
		}
		f.clock.Advance(ttl)
		f.sweep()
		f.sweep()
		r := f.wantReceipt(ann, ben, "m1", "undelivered: ")
		f.wantWoken(ann, 1)
		f.wantInbox(ann, r.ID)
		f.wantWoken(ben, 1)
	}},
	{"the sender of one that was handed over is not", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		list := f.leaseAll(ben, 2, time.Minute)
		f.wantSettled(list[1], agentrelay.OutcomeRetry, retried)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m3"})
		f.clock.Advance(ttl)
		f.sweep()
		f.wantState("m1", agentrelay.StatusExpired, 1)
		f.wantState("m2", agentrelay.StatusExpired, 1)
		f.wantState("m3", agentrelay.StatusDone, 0)
		f.wantNoReceipt(ann, "m1")
		f.wantNoReceipt(ann, "m2")
		f.wantReceipt(ann, ben, "m3", "")
	}},
	{"receipts expire without a word", func(f *fixture) {
		f.send("m1")
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.clock.Advance(ttl)
		f.sweep()
		f.wantEqual("status", f.find(ann, id).Status, agentrelay.StatusExpired)
		f.wantNoReceipt(ben, id)
		f.wantWoken(ben, 1)
	}},
	{"a leased message expires after its lease only", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		f.clock.Advance(ttl - time.Minute)
		list := f.leaseAll(ben, 4, 10*time.Minute)
		f.clock.Advance(5 * time.Minute)
		f.sweep()
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.wantSettled(list[1], agentrelay.OutcomeCompleted, completed)
		f.wantSettled(list[2], agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusExpired, Attempts: 1})
		f.wantSettled(list[2], agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusExpired, Attempts: 1})
		until, err := f.renew(list[3], time.Hour)
		f.must(err)
		f.wantEqual("until", until, f.clock.Now().Add(time.Hour))
		f.clock.Advance(5 * time.Minute)
		f.sweep()
		f.wantState("m1", agentrelay.StatusExpired, 1)
		f.wantState("m2", agentrelay.StatusDone, 0)
		f.wantState("m3", agentrelay.StatusExpired, 1)
		f.wantState("m4", agentrelay.StatusLeased, 0)
		f.wantInbox(ben)
		f.wantInbox(ann) // all four were handed over
	}},
	{"one given back past its time expires as if never leased", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl - time.Minute)
		m := f.lease(time.Hour)
		f.clock.Advance(time.Minute)
		f.must(f.store.Release(ctx, ben, []store.Leased{m}))
		f.wantState("m1", agentrelay.StatusExpired, 0)
		f.sweep()
		f.wantState("m1", agentrelay.StatusExpired, 0)
		f.wantReceipt(ann, ben, "m1", "undelivered: ")
	}},
	{"spent attempts outweigh expiry", func(f *fixture) {
		f.options.MaxAttempts = 1
		f.reopen(0)
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, retried)
		f.clock.Advance(ttl - time.Minute)
		m := f.lease(time.Hour)
		f.clock.Advance(time.Minute)
		f.wantSettled(m, agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusFailed, Attempts: 2})
		f.wantReceipt(ann, ben, "m1", "undelivered: ")
	}},
	{"an expired id no longer serves as a cursor", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(time.Minute)
		f.send("m2", "m3")
		f.clock.Advance(ttl - time.Minute)
		page := f.poll(ben, "m1")
		f.wantEqual("reset", page.Reset, true)
		f.wantEqual("all", idsOf(page.Messages), []string{"m2", "m3"})
		f.sweep()
		f.wantEqual("reset", f.poll(ben, "m1").Reset, true)
		f.wantEqual("reset by a live one", f.poll(ben, "m2").Reset, false)
		f.wantEqual("reset by a cursor", f.poll(ben, f.cursor(ben, 1)).Reset, false)
	}},
	{"an expired message can be acknowledged while its sender was not told", func(f *fixture) {
		f.send("told", "untold")
		f.must(f.store.Delivered(ctx, []string{"untold"}, start))
		f.clock.Advance(ttl)
		f.sweep()
		told := f.wantReceipt(ann, ben, "told", "undelivered: ")
		f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "told"}), told.ID)
		f.wantState("told", agentrelay.StatusExpired, 0)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "untold"})
		f.wantState("untold", agentrelay.StatusDone, 0)
		f.wantReceipt(ann, ben, "untold", "")
	}},
	{"bodies go an hour after expiry was seen, names and outcomes stay", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.must(f.store.Delivered(ctx, []string{"m3"}, start))
		f.clock.Advance(ttl + 30*time.Minute)
		if next := f.sweep(); next > store.EraseAfter {
			f.testing.Errorf("the next sweep is in %v, want it by the erasure", next)
		}
		f.clock.Advance(store.EraseAfter - time.Millisecond)
		f.sweep()
		f.wantEqual("with body", len(f.query(store.Filter{Agent: ben})), 3)
		f.clock.Advance(time.Millisecond)
		f.sweep()
		f.wantEqual("with body", len(f.query(store.Filter{Agent: ben})), 0)
		f.reopen(0)
		found := f.messages(ann, "m1", "m2", "m3")
		f.wantEqual("states", [...]any{found["m1"].Status, found["m2"].Status, found["m3"].Status, found["m1"].TS.UnixMilli()},
			[...]any{agentrelay.StatusExpired, agentrelay.StatusDone, agentrelay.StatusExpired, start.UnixMilli()})
		f.wantEqual("same again", f.enqueue(message("m1")), store.Enqueued{Duplicate: true, TS: start})
		other := message("m2")
		other.Body = json.RawMessage(`{}`)
		_, err := f.store.Enqueue(ctx, other)
		f.wantError(err, agentrelay.ErrIDConflict)
		f.wantEqual("reset", f.poll(ben, "m1").Reset, true)
		// What was never acknowledged still can be.
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m3"})
		f.wantReceipt(ann, ben, "m3", "")
		f.wantEqual("status", f.messages(ben, "m3")["m3"].Status, agentrelay.StatusDone)
	}},
	{"the row goes after the tombstone's time", func(f *fixture) {
		f.send("m1")
		f.erase()
		if next := f.sweep(); next > store.TombstoneTTL {
			f.testing.Errorf("the next sweep is in %v, want it by the removal", next)
		}
		f.clock.Advance(store.TombstoneTTL - time.Millisecond)
		f.sweep()
		f.wantEqual("known", f.known(ben, "m1"), []string{"m1"})
		f.clock.Advance(time.Millisecond)
		f.sweep()
		f.wantEqual("known", f.known(ben, "m1"), []string{})
		_, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantError(err, agentrelay.ErrNoSuchMessage)
		f.wantEqual("used anew", f.enqueue(message("m1")), store.Enqueued{TS: f.clock.Now()})
		f.wantInbox(ben, "m1")
		f.wantEqual("positions are not", f.poll(ben, "").Cursor, f.cursor(ben, 2))
	}},
	{"a sweep is bounded, its repetition is not", func(f *fixture) {
		const count = 600
		for i := range count {
			f.send(fmt.Sprint("m", i))
		}
		f.clock.Advance(ttl)
		f.sweep()
		f.wantEqual("expired", len(f.query(store.Filter{Agent: ben, Status: agentrelay.StatusExpired})), count)
		f.wantEqual("senders told", len(f.poll(ann, "").Messages), count)
		f.clock.Advance(store.EraseAfter)
		f.sweep()
		f.wantEqual("with body", len(f.query(store.Filter{Agent: ben})), 0)
		f.clock.Advance(store.TombstoneTTL)
		f.sweep()
		f.wantEqual("known", f.known(ben, "m0", "m599"), []string{})
	}},
}

// erase lets all messages expire and their bodies go.
func (f *fixture) erase() {
	f.testing.Helper()
	f.clock.Advance(ttl)
	f.sweep()
	f.clock.Advance(store.EraseAfter)
	f.sweep()
}
