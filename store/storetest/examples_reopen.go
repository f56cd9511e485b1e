package storetest

import (
	"path/filepath"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var reopenExamples = []example{
	{"everything answered is there again", func(f *fixture) {
		epoch := f.store.Epoch()
		f.send("queued", "done", "leased", "retried")
		f.must(f.store.Touch(ctx, map[string]time.Time{ann: start.Add(time.Minute)}))
		f.must(f.store.Delivered(ctx, []string{"queued"}, start.Add(time.Second)))
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "done"})
		list := f.leaseAll(ben, 3, time.Hour) // queued, leased, retried
		f.must(f.store.Release(ctx, ben, list[:1]))
		f.wantSettled(list[2], agentrelay.OutcomeRetry, retried)
		state := func() []any {
			agents, err := f.store.Agents(ctx)
			f.must(err)
			return []any{agents, f.query(store.Filter{Agent: ben}), f.poll(ben, ""), f.poll(ann, ""), f.query(store.Filter{Agent: ann})}
		}
		before := state()
		for range 2 {
			f.reopen(0)
			f.wantEqual("epoch", f.store.Epoch(), epoch)
			f.wantEqual("state", state(), before)
		}
		f.wantSettled(list[1], agentrelay.OutcomeCompleted, completed)
		f.wantEqual("same again", f.enqueue(message("done")).Duplicate, true)
		f.send("next")
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 7))
	}},
	{"another store has another epoch", func(f *fixture) {
		f.send("m1", "m2")
		old := f.poll(ben, "").Cursor
		first := f.store.Epoch()
		f.must(f.store.Close())
		f.dir = filepath.Join(f.dir, "another")
		f.store = f.open(f.testing, f.dir, f.options)
		if first == "" || f.store.Epoch() == first {
			f.testing.Fatalf("epochs %q and %q are not two epochs", first, f.store.Epoch())
		}
		f.must(f.store.Register(ctx, ben))
		f.send("m3", "m4", "m5")
		page := f.poll(ben, old)
		f.wantEqual("reset", page.Reset, true)
		f.wantEqual("all", idsOf(page.Messages), []string{"m3", "m4", "m5"})
	}},
	{"a lease that ran out while it was closed lives on a little", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		list := f.leaseAll(ben, 4, time.Minute)
		f.reopen(time.Hour)
		f.sweep()
		f.wantInbox(ben)
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.wantSettled(list[0], agentrelay.OutcomeCompleted, completed)
		f.clock.Advance(store.LeaseGrace - time.Millisecond)
		f.sweep()
		f.wantInbox(ben)
		f.wantSettled(list[1], agentrelay.OutcomeRetry, retried)
		_, err := f.renew(list[2], time.Hour)
		f.must(err)
		f.wantInbox(ben, "m2")
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben, "m2", "m4")
		f.wantState("m4", agentrelay.StatusQueued, 0) // uncounted
		f.wantState("m3", agentrelay.StatusLeased, 0)
		f.clock.Advance(time.Hour)
		f.wantInbox(ben, "m2", "m4", "m3")
		f.wantState("m3", agentrelay.StatusQueued, 1)
	}},
	{"the sweep ends such leases too", func(f *fixture) {
		f.send("m1", "m2")
		list := f.leaseAll(ben, 2, time.Minute)
		f.reopen(time.Hour)
		if next := f.sweep(); next > store.LeaseGrace {
			f.testing.Errorf("the next sweep is in %v, want it by the end of the grace", next)
		}
		f.clock.Advance(store.LeaseGrace)
		_, err := f.settle(list[1], agentrelay.OutcomeCompleted)
		f.wantError(err, agentrelay.ErrNotLeased)
		f.wantState("m2", agentrelay.StatusQueued, 0)
		f.sweep()
		f.wantState("m1", agentrelay.StatusQueued, 0)
		f.wantInbox(ben, "m2", "m1")
	}},
	{"such leases follow monotonic time too", func(f *fixture) {
		f.send("m1")
		f.lease(time.Minute)
		f.reopen(time.Hour)
		f.clock.Jump(24 * time.Hour)
		f.sweep()
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.clock.Advance(store.LeaseGrace - time.Millisecond)
		f.wantInbox(ben)
		f.clock.Jump(-48 * time.Hour)
		f.wantInbox(ben)
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben, "m1")
		f.wantState("m1", agentrelay.StatusQueued, 0)
	}},
	{"a lease that did not run out has its time", func(f *fixture) {
		f.send("m1", "m2")
		f.leaseAll(ben, 1, 70*time.Minute)
		f.leaseAll(ben, 1, time.Hour+10*time.Second)
		f.reopen(time.Hour)
		f.wantEqual("shown", f.find(ben, "m1").LeaseUntil, start.Add(70*time.Minute))
		f.clock.Advance(10 * time.Second)
		f.wantInbox(ben, "m2")
		f.wantState("m2", agentrelay.StatusQueued, 1)
		f.clock.Advance(9*time.Minute + 50*time.Second - time.Millisecond)
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.clock.Advance(time.Millisecond)
		f.wantInbox(ben, "m2", "m1")
	}},
	{"what expired meanwhile is seen to have expired", func(f *fixture) {
		f.send("m1", "m2")
		f.reopen(8 * 24 * time.Hour)
		f.wantInbox(ben)
		f.sweep()
		f.wantState("m1", agentrelay.StatusExpired, 0)
		f.wantReceipt(ann, ben, "m1", "undelivered: ")
		f.reopen(-8 * 24 * time.Hour)
		f.sweep()
		f.wantEqual("revived", sortedIDs(f.poll(ben, "").Messages), []string{"m1", "m2"})
	}},
	{"after Close every call fails", func(f *fixture) {
		s := f.store
		f.must(s.Close())
		calls := map[string]func() error{
			"Register":    func() error { return s.Register(ctx, zoe) },
			"Touch":       func() error { return s.Touch(ctx, map[string]time.Time{zoe: start.Add(time.Hour)}) },
			"Agents":      func() error { _, err := s.Agents(ctx); return err },
			"Enqueue":     func() error { _, err := s.Enqueue(ctx, message("m1")); return err },
			"Acknowledge": func() error { _, err := s.Acknowledge(ctx, store.Acknowledgement{Agent: ben, ID: "m1"}); return err },
			"Poll": func() error {
				_, err := s.Poll(ctx, store.PollQuery{Agent: ben, Limit: 1, MaxBytes: 1})
				return err
			},
			"Delivered": func() error { return s.Delivered(ctx, []string{"m1"}, start) },
			"Lease": func() error {
				_, err := s.Lease(ctx, store.LeaseRequest{Agent: ben, Limit: 1, MaxBytes: 1, For: time.Minute})
				return err
			},
			"Settle": func() error {
				_, err := s.Settle(ctx, store.Settlement{Agent: ben, ID: "m1", Outcome: agentrelay.OutcomeCompleted})
				return err
			},
			"Renew": func() error {
				_, err := s.Renew(ctx, store.Renewal{Agent: ben, ID: "m1", For: time.Minute})
				return err
			},
			"Release":     func() error { return s.Release(ctx, ben, []store.Leased{{Message: message("m1")}}) },
			"Messages":    func() error { _, err := s.Messages(ctx, ben, []string{"m1"}); return err },
			"Query":       func() error { _, err := s.Query(ctx, store.Filter{Agent: ben, Limit: 1, MaxBytes: 1}); return err },
			"Backlog":     func() error { _, err := s.Backlog(ctx, ""); return err },
			"AddAgent":    func() error { _, err := s.AddAgent(ctx, ghost, store.AgentPatch{}, aKey("k1")); return err },
			"UpdateAgent": func() error { _, err := s.UpdateAgent(ctx, ben, store.AgentPatch{}); return err },
			"RemoveAgent": func() error { return s.RemoveAgent(ctx, ben) },
			"AddKey":      func() error { _, err := s.AddKey(ctx, ben, aKey("k1")); return err },
			"RotateKey":   func() error { _, err := s.RotateKey(ctx, ben, aKey("k1"), start); return err },
			"RevokeKey":   func() error { _, err := s.RevokeKey(ctx, ben, "k1"); return err },
			"Used":        func() error { return s.Used(ctx, map[store.KeyName]time.Time{{Agent: ben, ID: "k1"}: start}) },
			"Requeue":     func() error { return s.Requeue(ctx, "m1") },
			"Cancel":      func() error { return s.Cancel(ctx, "m1") },
			"Sweep":       func() error { _, err := s.Sweep(ctx); return err },
			"Probe":       func() error { return s.Probe(ctx) },
		}
		for name, call := range calls {
			if err := call(); err == nil {
				f.testing.Errorf("%s works after Close", name)
			}
		}
		f.store = f.open(f.testing, f.dir, f.options)
		f.wantInbox(ben)
	}},
}
