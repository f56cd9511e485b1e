package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var quotaExamples = []example{
	{"an inbox takes so many messages and no more", func(f *fixture) {
		f.limit(2, 1<<20)
		f.send("m1", "m2")
		f.wantRefused(message("m3"))
		f.wantInbox(ben, "m1", "m2")
		other := message("m4")
		other.To = zoe
		f.enqueue(other)
		f.reopen(0)
		f.wantRefused(message("m3"))
	}},
	{"an inbox takes so many bytes of bodies and no more", func(f *fixture) {
		f.limit(100, 100)
		f.enqueue(sized("m1", 60))
		f.enqueue(sized("m2", 40))
		f.wantRefused(sized("m3", 3))
		f.wantWaiting(ben, 2, 100)
	}},
	{"what is refused says when to try again, and takes no position", func(f *fixture) {
		f.limit(1, 1<<20)
		f.send("m1")
		_, err := f.store.Enqueue(ctx, message("m2"))
		f.wantError(err, agentrelay.ErrQueueFull)
		if agentrelay.Wrap(err).RetryAfter <= 0 {
			f.testing.Errorf("the refusal does not say when to try again: %#v", err)
		}
		m := f.lease(time.Minute)
		f.send("m2")
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 2))
		f.wantSettled(m, agentrelay.OutcomeCompleted, store.Settled{Status: agentrelay.StatusDone})
	}},
	{"known ids and unknown recipients are answered before the quota", func(f *fixture) {
		f.limit(1, 1<<20)
		f.send("m1")
		f.wantEqual("duplicate", f.enqueue(message("m1")).Duplicate, true)
		for want, m := range map[error]agentrelay.Message{
			agentrelay.ErrIDConflict:  {ID: "m1", From: ann, To: ben, Body: json.RawMessage(`"other"`)},
			agentrelay.ErrNoSuchAgent: {ID: "m9", From: ann, To: ghost, Body: json.RawMessage(`1`)},
		} {
			_, err := f.store.Enqueue(ctx, m)
			f.wantError(err, want)
			_, err = f.store.Known(ctx, m)
			f.wantError(err, want)
		}
	}},
	{"what an operator set for an agent counts in place of the broker's", func(f *fixture) {
		f.limit(2, 1<<20)
		one := int64(1)
		_, err := f.store.UpdateAgent(ctx, ben, store.AgentPatch{MaxQueued: store.Patch[int64]{Set: true, Value: &one}})
		f.must(err)
		f.send("m1")
		f.wantRefused(message("m2"))
		_, err = f.store.UpdateAgent(ctx, ben, store.AgentPatch{MaxQueued: store.Patch[int64]{Set: true}})
		f.must(err)
		f.send("m2")
		f.wantRefused(message("m3"))
	}},
	{"what an operator cancels waits no more, and what is queued again waits if it was never handed over", func(f *fixture) {
		f.send("m1", "m2")
		f.must(f.store.Cancel(ctx, "m1"))
		f.wantWaiting(ben, 1, bodies("m2"))
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true})
		f.wantWaiting(ben, 0, 0)
		f.must(f.store.Requeue(ctx, "m2"))
		f.wantWaiting(ben, 1, bodies("m2"))
	}},
	{"what was handed over by a poll waits no more", func(f *fixture) {
		f.limit(1, 1<<20)
		f.send("m1")
		f.must(f.store.Delivered(ctx, []string{"m1"}, start))
		f.wantWaiting(ben, 0, 0)
		f.send("m2")
		f.must(f.store.Delivered(ctx, []string{"m1", "m2", "unknown"}, start))
		f.wantWaiting(ben, 0, 0)
	}},
	{"what is or was leased waits no more, unless the lease is given back", func(f *fixture) {
		f.send("m1", "m2", "m3")
		list := f.leaseAll(ben, 2, time.Minute)
		f.wantWaiting(ben, 1, bodies("m3"))
		f.must(f.store.Release(ctx, ben, list[:1]))
		f.wantWaiting(ben, 2, bodies("m1", "m3"))
		f.wantSettled(list[1], agentrelay.OutcomeRetry, retried)
		f.wantWaiting(ben, 2, bodies("m1", "m3"))
		f.clock.Advance(time.Hour)
		f.sweep()
		f.wantWaiting(ben, 2, bodies("m1", "m3"))
	}},
	{"what is acknowledged unseen waits no more", func(f *fixture) {
		f.send("m1", "m2")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2", Failed: true})
		f.wantWaiting(ben, 0, 0)
	}},
	{"what expired waits no more, until that is taken back", func(f *fixture) {
		f.send("m1")
		f.clock.Jump(ttl)
		f.sweep()
		f.wantWaiting(ben, 0, 0)
		f.clock.Jump(-ttl)
		f.sweep()
		f.wantWaiting(ben, 1, bodies("m1"))
	}},
	{"receipts are not counted and not refused; what agents send as such is", func(f *fixture) {
		f.limit(2, 1<<20)
		f.send("m1")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantWaiting(ann, 0, 0)
		for _, id := range []string{"a1", "a2"} {
			f.enqueue(agentrelay.Message{ID: id, From: ben, To: ann, Type: agentrelay.TypeAck, Kind: agentrelay.KindMessage, Body: json.RawMessage(`1`)})
		}
		f.wantWaiting(ann, 2, 2)
		f.send("m2")
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.wantWaiting(ann, 2, 2)
		f.wantEqual("messages of ann", len(f.poll(ann, "").Messages), 4)
		list := f.leaseAll(ann, 4, time.Minute)
		f.wantWaiting(ann, 0, 0)
		f.must(f.store.Release(ctx, ann, list))
		f.wantWaiting(ann, 2, 2)
	}},
}

// limit opens the store again with a quota.
func (f *fixture) limit(messages int, bytes int64) {
	f.testing.Helper()
	f.options.MaxQueued, f.options.MaxQueuedBytes = messages, bytes
	f.reopen(0)
}

// wantRefused checks that a message does not fit, and that Known says so too.
func (f *fixture) wantRefused(m agentrelay.Message) {
	f.testing.Helper()
	_, err := f.store.Known(ctx, m)
	f.wantError(err, agentrelay.ErrQueueFull)
	_, err = f.store.Enqueue(ctx, m)
	f.wantError(err, agentrelay.ErrQueueFull)
}

// wantWaiting checks what counts toward the quota of an inbox.
func (f *fixture) wantWaiting(agent string, messages int, bytes int64) {
	f.testing.Helper()
	agents, err := f.store.Agents(ctx)
	f.must(err)
	for _, a := range agents {
		if a.Name == agent {
			f.wantEqual("waiting for "+agent, fmt.Sprint(a.Waiting, a.WaitingBytes), fmt.Sprint(messages, bytes))
			return
		}
	}
	f.testing.Fatalf("%s is not registered", agent)
}

// sized is a message whose body has so many bytes.
func sized(id string, bytes int) agentrelay.Message {
	m := message(id)
	m.Body = json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
	return m
}

// bodies is the size of messages' bodies.
func bodies(ids ...string) (size int64) {
	for _, id := range ids {
		size += int64(len(message(id).Body))
	}
	return size
}
