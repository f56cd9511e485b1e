package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var registryExamples = []example{
	{"agents are listed by name, with when they were seen", func(f *fixture) {
		f.clock.Advance(time.Minute)
		f.must(f.store.Register(ctx, "Ben"))
		agents, err := f.store.Agents(ctx)
		f.must(err)
		f.wantEqual("agents", agents, []store.Agent{
			{Name: "Ben", LastSeen: start.Add(time.Minute)},
			{Name: ann, LastSeen: start},
			{Name: ben, LastSeen: start},
			{Name: zoe, LastSeen: start},
		})
	}},
	{"registering again changes nothing but when the agent was seen", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(time.Minute)
		f.must(f.store.Register(ctx, ben))
		f.wantSeen(ben, start.Add(time.Minute))
		f.wantInbox(ben, "m1")
		f.wantEqual("next message", f.enqueue(message("m2")), store.Enqueued{TS: start.Add(time.Minute)})
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 2))
	}},
	{"registering again moves the time seen forward only", func(f *fixture) {
		f.clock.Jump(-time.Hour)
		f.must(f.store.Register(ctx, ben))
		f.wantSeen(ben, start)
	}},
	{"touch moves the time seen forward only", func(f *fixture) {
		later := start.Add(time.Hour)
		f.must(f.store.Touch(ctx, map[string]time.Time{ann: later, ben: start.Add(-time.Hour)}))
		f.wantSeen(ann, later)
		f.wantSeen(ben, start)
		f.must(f.store.Touch(ctx, map[string]time.Time{ann: start}))
		f.wantSeen(ann, later)
		f.must(f.store.Touch(ctx, nil))
	}},
	{"touch ignores names that are not registered", func(f *fixture) {
		f.must(f.store.Touch(ctx, map[string]time.Time{ghost: start.Add(time.Hour), ann: start.Add(time.Hour)}))
		f.wantSeen(ann, start.Add(time.Hour))
		agents, err := f.store.Agents(ctx)
		f.must(err)
		f.wantEqual("number of agents", len(agents), 3)
	}},
	{"a receipt registers nobody", func(f *fixture) {
		m := message("m1")
		m.From = ghost
		f.enqueue(m)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		f.wantReceipt(ghost, ben, "m1", "")
		agents, err := f.store.Agents(ctx)
		f.must(err)
		f.wantEqual("number of agents", len(agents), 3)
		reply := message("m2")
		reply.To = ghost
		_, err = f.store.Enqueue(ctx, reply)
		f.wantError(err, agentrelay.ErrNoSuchAgent)
		f.must(f.store.Register(ctx, ghost))
		f.enqueue(reply)
		f.wantEqual("inbox of ghost", len(f.poll(ghost, "").Messages), 2)
	}},
	{"a working store can write and says so", func(f *fixture) {
		f.must(f.store.Probe(ctx))
		f.must(f.store.Err())
		select {
		case <-f.store.Failed():
			f.testing.Fatalf("Failed is closed though nothing failed")
		default:
		}
	}},
}

func (f *fixture) wantSeen(agent string, at time.Time) {
	f.testing.Helper()
	agents, err := f.store.Agents(ctx)
	f.must(err)
	for _, a := range agents {
		if a.Name == agent {
			f.wantEqual(agent+" last seen", a.LastSeen, at)
			return
		}
	}
	f.testing.Fatalf("%s is not registered", agent)
}

var enqueueExamples = []example{
	{"a message comes back as it was given", func(f *fixture) {
		m := agentrelay.Message{
			ID: "a/b:c@d", From: ann, To: ben, Type: agentrelay.TypeMessage, Kind: agentrelay.KindRequest,
			Body:    json.RawMessage("{ \"n\": 12345678901234567890.10, \"a\": 1, \"a\": \"\\u2028\u2028\\/\U0001F600\",\t\"z\":null}"),
			ReplyTo: "earlier", Ack: true, RootID: "root", ParentID: "parent",
		}
		// What the store decides itself is not taken from the caller.
		given := m
		given.TS, given.Status, given.Attempts = start.Add(-time.Hour), agentrelay.StatusDone, 7
		given.LeaseUntil, given.LeaseID, given.Error, given.DeliveredAt = start, "lease", "error", start
		f.enqueue(given)
		m.TS, m.Status = start, agentrelay.StatusQueued
		f.wantEqual("polled", f.poll(ben, "").Messages, []agentrelay.Message{m})
		f.wantEqual("queried", f.query(store.Filter{Agent: ben}), []agentrelay.Message{m})
		leased := f.lease(time.Minute)
		m.Status, m.LeaseID, m.LeaseUntil, m.DeliveredAt = agentrelay.StatusLeased, leased.LeaseID, start.Add(time.Minute), start
		f.wantEqual("leased", leased, store.Leased{Message: m, First: true})
	}},
	{"any body is kept byte for byte", func(f *fixture) {
		bodies := []string{`null`, `{}`, `0`, `""`, `[1 , 2]`, `"` + strings.Repeat("x", 1<<20) + `"`}
		for i, body := range bodies {
			m := message(fmt.Sprint("m", i))
			m.Body = json.RawMessage(body)
			f.enqueue(m)
		}
		for i, m := range f.poll(ben, "").Messages {
			if string(m.Body) != bodies[i] {
				f.testing.Errorf("body %d came back as %.80q, want %.80q", i, m.Body, bodies[i])
			}
		}
	}},
	{"TS is the clock's time, to the millisecond", func(f *fixture) {
		f.clock.Advance(1999 * time.Microsecond)
		f.wantEqual("answer", f.enqueue(message("m1")), store.Enqueued{TS: start.Add(time.Millisecond)})
		f.wantEqual("TS", f.find(ben, "m1").TS, start.Add(time.Millisecond))
	}},
	{"the same again is a duplicate", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(time.Hour)
		for range 2 {
			f.wantEqual("answer", f.enqueue(message("m1")), store.Enqueued{Duplicate: true, TS: start})
		}
		f.wantInbox(ben, "m1")
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 1))
		f.wantWoken(ben, 1)
	}},
	{"what is known can be told without storing anything", func(f *fixture) {
		known, err := f.store.Known(ctx, message("m1"))
		f.must(err)
		f.wantEqual("a new message", known, store.Enqueued{})
		f.wantInbox(ben)
		f.send("m1")
		f.forget()
		known, err = f.store.Known(ctx, message("m1"))
		f.must(err)
		f.wantEqual("a duplicate", known, store.Enqueued{Duplicate: true, TS: start})
		other := message("m1")
		other.Body = []byte(`1`)
		_, err = f.store.Known(ctx, other)
		f.wantError(err, agentrelay.ErrIDConflict)
		for _, name := range []string{ghost, "nobody"} {
			m := message("m2")
			m.To = name
			_, err = f.store.Known(ctx, m)
			f.wantError(err, agentrelay.ErrNoSuchAgent)
		}
		f.wantInbox(ben, "m1")
		f.wantEvents()
	}},
	{"the same again is a duplicate in every state", func(f *fixture) {
		f.send("m1")
		leased := f.lease(time.Minute)
		f.wantEqual("duplicate of a leased one", f.enqueue(message("m1")).Duplicate, true)
		f.wantState("m1", agentrelay.StatusLeased, 0)
		f.wantSettled(leased, agentrelay.OutcomeCompleted, store.Settled{Status: agentrelay.StatusDone})
		f.wantEqual("duplicate of a done one", f.enqueue(message("m1")).Duplicate, true)
		f.wantState("m1", agentrelay.StatusDone, 0)
		f.wantInbox(ben)
	}},
	{"any difference under a known id is a conflict", func(f *fixture) {
		original := message("m1")
		f.enqueue(original)
		changes := map[string]func(m *agentrelay.Message){
			"from":                                func(m *agentrelay.Message) { m.From = zoe },
			"to":                                  func(m *agentrelay.Message) { m.To = zoe },
			"body":                                func(m *agentrelay.Message) { m.Body = json.RawMessage(`{"text": "m1"}`) },
			"type":                                func(m *agentrelay.Message) { m.Type = agentrelay.TypeAck },
			"kind":                                func(m *agentrelay.Message) { m.Kind = agentrelay.KindReply },
			"replyTo":                             func(m *agentrelay.Message) { m.ReplyTo = "m0" },
			"ack":                                 func(m *agentrelay.Message) { m.Ack = true },
			"rootId":                              func(m *agentrelay.Message) { m.RootID = "m0" },
			"parentId":                            func(m *agentrelay.Message) { m.ParentID = "m0" },
			"to nobody, which is looked at later": func(m *agentrelay.Message) { m.To = ghost },
		}
		for name, change := range changes {
			m := message("m1")
			change(&m)
			if _, err := f.store.Enqueue(ctx, m); err == nil {
				f.testing.Errorf("a message with another %s was accepted under the same id", name)
			} else {
				f.wantError(err, agentrelay.ErrIDConflict)
			}
		}
		original.TS, original.Status = start, agentrelay.StatusQueued
		f.wantEqual("inbox", f.poll(ben, "").Messages, []agentrelay.Message{original})
		f.wantInbox(zoe)
	}},
	{"the recipient must be registered", func(f *fixture) {
		m := message("m1")
		m.To = ghost
		_, err := f.store.Enqueue(ctx, m)
		f.wantError(err, agentrelay.ErrNoSuchAgent)
		// The id was not used up.
		f.wantEqual("duplicate", f.enqueue(message("m1")).Duplicate, false)
	}},
	{"the sender need not be registered", func(f *fixture) {
		m := message("m1")
		m.From = ghost
		f.enqueue(m)
		f.wantInbox(ben, "m1")
	}},
	{"a stored message wakes its recipient", func(f *fixture) {
		f.send("m1")
		f.wantWoken(ben, 1)
		f.send("m2")
		f.wantWoken(ben, 2)
		f.wantWoken(ann, 0)
	}},
	{"who is woken finds the message", func(f *fixture) {
		woken := make(chan string, 100)
		f.options.Observe = func(events []store.Event) { woken <- events[0].To }
		f.reopen(0)
		for i := range 20 {
			answered := make(chan error, 1)
			go func() {
				_, err := f.store.Enqueue(ctx, message(fmt.Sprint("m", i)))
				answered <- err
			}()
			select {
			case agent := <-woken:
				f.wantEqual("woken", agent, ben)
			case <-time.After(30 * time.Second):
				f.testing.Fatalf("nobody was woken")
			}
			f.wantEqual("messages", len(f.poll(ben, "").Messages), i+1)
			f.must(<-answered)
		}
	}},
	{"a call whose context has ended stores nothing or says that it stored", func(f *fixture) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := f.store.Enqueue(ended, message("m1"))
		f.wantEqual("stored", len(f.poll(ben, "").Messages) == 1, err == nil)
	}},
}
