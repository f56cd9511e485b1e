package storetest

import (
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var acknowledgeExamples = []example{
	{"a success is done and goes to the sender", func(f *fixture) {
		f.send("m1", "m2")
		f.clock.Advance(time.Second)
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantInbox(ben, "m2")
		r := f.wantReceipt(ann, ben, "m1", "")
		f.wantEqual("receipt", [...]any{r.ID, r.TS.UnixMilli(), r.Status}, [...]any{id, start.Add(time.Second).UnixMilli(), agentrelay.StatusQueued})
		f.wantInbox(ann, id)
		f.wantWoken(ann, 1)
		f.wantWoken(ben, 2)
	}},
	{"an error is failed and says why", func(f *fixture) {
		f.send("m1", "m2", "m3")
		for id, text := range map[string]string{"m1": "it \"broke\"\n\u2028\x01", "m2": "<&>", "m3": ""} {
			f.acknowledge(store.Acknowledgement{Agent: ben, ID: id, Failed: true, Error: text})
			f.wantState(id, agentrelay.StatusFailed, 0)
			f.wantEqual("error", f.find(ben, id).Error, text)
			want := agentrelay.AppendString([]byte(`{"status":"error","error":`), text)
			f.wantEqual("body", string(f.receipts(ann, id)[0].Body), string(append(want, '}')))
		}
		f.wantInbox(ben)
	}},
	{"a receipt may have a body of its own", func(f *fixture) {
		f.send("m1", "m2")
		for id, failed := range map[string]bool{"m1": false, "m2": true} {
			body := `{"status": "x", "of": "` + id + `"}`
			first := f.acknowledge(store.Acknowledgement{Agent: ben, ID: id, Failed: failed, Error: "no", Body: []byte(body)})
			f.wantEqual("body", string(f.receipts(ann, id)[0].Body), body)
			f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: id, Body: []byte(`{}`)}), first)
		}
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantState("m2", agentrelay.StatusFailed, 0)
		f.wantEqual("error", f.find(ben, "m2").Error, "no")
	}},
	{"the first outcome wins", func(f *fixture) {
		f.send("m1", "m2")
		first := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		second := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true, Error: "no"})
		f.reopen(0)
		for range 2 {
			f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true, Error: "late"}), first)
			f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"}), first)
			f.wantEqual("receipt", f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"}), second)
		}
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantState("m2", agentrelay.StatusFailed, 0)
		f.wantEqual("error", f.find(ben, "m2").Error, "no")
		f.wantInbox(ann, first, second)
	}},
	{"one that was completed already is acknowledged as done", func(f *fixture) {
		f.send("m1")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeCompleted, completed)
		f.wantNoReceipt(ann, "m1")
		id := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true, Error: "no"})
		f.wantEqual("receipt", f.wantReceipt(ann, ben, "m1", "").ID, id)
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantEqual("error", f.find(ben, "m1").Error, "")
	}},
	{"it checks message, agent and type", func(f *fixture) {
		f.send("m1")
		for agent, id := range map[string]string{ben: "unknown", zoe: ""} {
			_, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: agent, ID: id})
			f.wantError(err, agentrelay.ErrNoSuchMessage)
		}
		for _, agent := range []string{ann, zoe, ghost} {
			_, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: agent, ID: "m1"})
			f.wantError(err, agentrelay.ErrForbidden)
		}
		f.wantState("m1", agentrelay.StatusQueued, 0)
		receipt := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		_, err := f.store.Acknowledge(ctx, store.Acknowledgement{Agent: ann, ID: receipt})
		f.wantError(err, agentrelay.ErrBadRequest)
		_, err = f.store.Acknowledge(ctx, store.Acknowledgement{Agent: ben, ID: receipt})
		f.wantError(err, agentrelay.ErrForbidden)
		f.wantInbox(ann, receipt)
	}},
	{"it ends a lease", func(f *fixture) {
		f.send("m1", "m2")
		list := f.leaseAll(ben, 2, time.Minute)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true})
		f.wantEqual("lease end", f.find(ben, "m1").LeaseUntil, time.Time{})
		for _, m := range list {
			for _, outcome := range []agentrelay.Outcome{agentrelay.OutcomeCompleted, agentrelay.OutcomeRetry} {
				_, err := f.settle(m, outcome)
				f.wantError(err, agentrelay.ErrNotLeased)
			}
			_, err := f.renew(m, time.Minute)
			f.wantError(err, agentrelay.ErrNotLeased)
		}
		f.clock.Advance(time.Hour)
		f.sweep()
		f.wantInbox(ben)
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantState("m2", agentrelay.StatusFailed, 0)
	}},
	{"it may come after the lease ran out", func(f *fixture) {
		f.send("m1", "m2")
		f.leaseAll(ben, 2, time.Minute)
		f.clock.Advance(time.Hour)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.sweep()
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.wantEqual("status", f.find(ben, "m1").Status, agentrelay.StatusDone)
		f.wantState("m2", agentrelay.StatusDone, 1)
		f.wantInbox(ben)
		f.wantReceipt(ann, ben, "m1", "")
		f.wantReceipt(ann, ben, "m2", "")
	}},
	{"what waits again after a retry can be acknowledged", func(f *fixture) {
		f.send("m1")
		m := f.lease(time.Minute)
		f.wantSettled(m, agentrelay.OutcomeRetry, retried)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true, Error: "no"})
		f.wantState("m1", agentrelay.StatusFailed, 1)
		f.wantReceipt(ann, ben, "m1", "no")
		f.wantSettled(m, agentrelay.OutcomeRetry, retried)
	}},
	{"receipts pass by the sender's position counter in order", func(f *fixture) {
		f.send("m1", "m2", "m3")
		reply := message("reply")
		reply.From, reply.To = ben, ann
		second := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.enqueue(reply)
		first := f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantInbox(ann, second, "reply", first)
		f.wantEqual("cursor", f.poll(ann, "").Cursor, f.cursor(ann, 3))
		f.wantEqual("a receipt's id as cursor", idsOf(f.poll(ann, second).Messages), []string{"reply", first})
	}},
}
