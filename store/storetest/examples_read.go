package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

var pollExamples = []example{
	{"an empty inbox answers with what it was given", func(f *fixture) {
		f.wantEqual("page", f.poll(ben, ""), store.Page{})
		f.wantEqual("page", f.poll(ben, f.cursor(ben, 0)), store.Page{Cursor: f.cursor(ben, 0)})
		f.wantEqual("page of nobody", f.poll(ghost, ""), store.Page{})
	}},
	{"oldest first, and nothing is consumed", func(f *fixture) {
		f.send("m2", "m1", "m3")
		for range 2 {
			f.wantInbox(ben, "m2", "m1", "m3")
		}
		f.wantInbox(ann)
		f.wantEqual("delivered", f.find(ben, "m1").DeliveredAt, time.Time{})
	}},
	{"the cursor is that of the last message", func(f *fixture) {
		f.send("m1", "m2")
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 2))
		f.wantEqual("from the first on", idsOf(f.poll(ben, f.cursor(ben, 1)).Messages), []string{"m2"})
		f.wantEqual("at the end", f.poll(ben, f.cursor(ben, 2)), store.Page{Cursor: f.cursor(ben, 2)})
	}},
	{"order does not depend on the clock", func(f *fixture) {
		f.send("m1", "m2")
		f.clock.Jump(-time.Hour)
		f.send("m3")
		f.clock.Jump(30 * time.Minute)
		f.send("m4")
		f.wantInbox(ben, "m1", "m2", "m3", "m4")
	}},
	{"many of one millisecond are paged without loss", func(f *fixture) {
		const count = 130
		var want, got []string
		for i := range count {
			want = append(want, fmt.Sprint("m", i))
		}
		f.send(want...)
		for since := ""; ; {
			page := f.pollPage(store.PollQuery{Agent: ben, Since: since, Limit: 25, MaxBytes: everything})
			if len(page.Messages) == 0 {
				break
			}
			got, since = append(got, idsOf(page.Messages)...), page.Cursor
		}
		f.wantEqual("paged", got, want)
	}},
	{"a page ends before its bodies exceed MaxBytes", func(f *fixture) {
		for i, size := range []int{30, 70, 1, 200, 5} {
			m := message(fmt.Sprint("m", i))
			m.Body = json.RawMessage(strings.Repeat("1", size))
			f.enqueue(m)
		}
		page := func(since string, bytes int) []string {
			return idsOf(f.pollPage(store.PollQuery{Agent: ben, Since: since, Limit: everything, MaxBytes: bytes}).Messages)
		}
		f.wantEqual("exactly as much", page("", 100), []string{"m0", "m1"})
		f.wantEqual("a byte less", page("", 99), []string{"m0"})
		f.wantEqual("a byte more", page("", 101), []string{"m0", "m1", "m2"})
		f.wantEqual("at least one", page("m2", 1), []string{"m3"})
		f.wantEqual("it does not skip a large one", page("m1", 10), []string{"m2"})
	}},
	{"an id of the inbox stands for its first position", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.wantEqual("after m1", idsOf(f.poll(ben, "m1").Messages), []string{"m2", "m3"})
		f.wantEqual("after the last", f.poll(ben, "m3"), store.Page{Cursor: "m3"})
		// Queued again, m1 has position 4, and stands for 1 still.
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusQueued, Attempts: 1})
		page := f.poll(ben, "m1")
		f.wantEqual("after m1", idsOf(page.Messages), []string{"m2", "m3", "m1"})
		f.wantEqual("cursor", page.Cursor, f.cursor(ben, 4))
		// So does one that will not be delivered any more.
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.wantEqual("after m2", f.poll(ben, "m2").Reset, false)
		f.wantEqual("after m2", idsOf(f.poll(ben, "m2").Messages), []string{"m3", "m1"})
	}},
	{"anything else is answered from the beginning", func(f *fixture) {
		f.send("m1", "m2")
		other := message("elsewhere")
		other.To = zoe
		f.enqueue(other)
		tag := agentrelay.CursorTag(f.store.Epoch(), ben)
		for name, since := range map[string]string{
			"unknown id":             "nothing",
			"id of another inbox":    "elsewhere",
			"cursor of another":      f.cursor(ann, 1),
			"cursor of another time": agentrelay.Cursor{Tag: agentrelay.CursorTag("epoch", ben), Position: 1}.String(),
			"beyond the end":         f.cursor(ben, 3),
			"far beyond the end":     "cursor:" + tag + ":9223372036854775807",
			"beyond all numbers":     "cursor:" + tag + ":9223372036854775808",
			"negative":               "cursor:" + tag + ":-1",
			"leading zero":           "cursor:" + tag + ":01",
			"no position":            "cursor:" + tag,
			"no cursor at all":       "\x00'; --\xff",
		} {
			page := f.poll(ben, since)
			if !page.Reset || !slices.Equal(idsOf(page.Messages), []string{"m1", "m2"}) || page.Cursor != f.cursor(ben, 2) {
				f.testing.Errorf("%s: got %d messages, reset %v, cursor %q; want all from the beginning", name, len(page.Messages), page.Reset, page.Cursor)
			}
		}
		// Nothing retained: the caller is told all the same, and keeps its text.
		f.wantEqual("page", f.poll(ann, "nothing"), store.Page{Cursor: "nothing", Reset: true})
	}},
	{"queued messages only", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		f.leaseAll(ben, 1, time.Minute)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m3", Failed: true})
		f.wantInbox(ben, "m4")
	}},
	{"the first hand-over is recorded once", func(f *fixture) {
		f.send("m1", "m2")
		at := start.Add(5 * time.Second)
		f.must(f.store.Delivered(ctx, []string{"m1", "unknown"}, at))
		f.must(f.store.Delivered(ctx, []string{"m1", "m2"}, at.Add(time.Second)))
		f.must(f.store.Delivered(ctx, nil, at))
		f.wantEqual("first", f.find(ben, "m1").DeliveredAt, at)
		f.wantEqual("second", f.find(ben, "m2").DeliveredAt, at.Add(time.Second))
		f.wantInbox(ben, "m1", "m2")
		f.clock.Advance(time.Minute)
		f.wantEqual("leased later", f.lease(time.Minute).DeliveredAt, at)
	}},
}

var queryExamples = []example{
	{"newest first by first position, in every state", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		f.wantSettled(f.lease(time.Minute), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusQueued, Attempts: 1})
		f.lease(time.Minute) // m2
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m3"})
		f.wantInbox(ben, "m4", "m1")
		f.wantEqual("all", idsOf(f.query(store.Filter{Agent: ben})), []string{"m4", "m3", "m2", "m1"})
		f.wantEqual("of nobody", len(f.query(store.Filter{Agent: ghost})), 0)
	}},
	{"a filter takes what matches all its members", func(f *fixture) {
		for _, m := range []agentrelay.Message{
			{ID: "m1", From: ann, Kind: agentrelay.KindMessage},
			{ID: "m2", From: zoe, Kind: agentrelay.KindRequest},
			{ID: "m3", From: ann, Kind: agentrelay.KindRequest},
			{ID: "m4", From: "Ann", Kind: agentrelay.KindReply},
		} {
			m.To, m.Type, m.Body = ben, agentrelay.TypeMessage, json.RawMessage(`{}`)
			f.enqueue(m)
		}
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1", Failed: true, Error: "no"})
		f.lease(time.Minute) // m2
		for _, c := range []struct {
			filter store.Filter
			want   string
		}{
			{store.Filter{ID: "m2", From: zoe, Kind: agentrelay.KindRequest, Status: agentrelay.StatusLeased}, "m2"},
			{store.Filter{ID: "m2", From: ann}, ""},
			{store.Filter{ID: "m2", Status: agentrelay.StatusDone}, ""},
			{store.Filter{ID: "unknown"}, ""},
			{store.Filter{Status: agentrelay.StatusLeased, Kind: agentrelay.KindReply}, ""},
			{store.Filter{}, "m4 m3 m2 m1"},
			{store.Filter{From: ann}, "m3 m1"},
			{store.Filter{From: "an"}, ""},
			{store.Filter{From: "%"}, ""},
			{store.Filter{To: ben}, "m4 m3 m2 m1"},
			{store.Filter{To: ann}, ""},
			{store.Filter{Kind: agentrelay.KindRequest}, "m3 m2"},
			{store.Filter{Status: agentrelay.StatusQueued}, "m4 m3"},
			{store.Filter{Status: agentrelay.StatusLeased}, "m2"},
			{store.Filter{Status: agentrelay.StatusFailed}, "m1"},
			{store.Filter{Status: agentrelay.StatusDone}, ""},
			{store.Filter{From: ann, Kind: agentrelay.KindRequest, Status: agentrelay.StatusQueued, To: ben}, "m3"},
			{store.Filter{From: ann, Kind: agentrelay.KindReply}, ""},
		} {
			c.filter.Agent = ben
			f.wantEqual(fmt.Sprintf("%+v", c.filter), strings.Join(idsOf(f.query(c.filter)), " "), c.want)
		}
	}},
	{"limits are those of a page", func(f *fixture) {
		f.send("m1", "m2", "m3") // 13 bytes each
		query := func(limit, bytes int, from string) []string {
			list, err := f.store.Query(ctx, store.Filter{Agent: ben, From: from, Limit: limit, MaxBytes: bytes})
			f.must(err)
			return idsOf(list)
		}
		f.wantEqual("two", query(2, everything, ""), []string{"m3", "m2"})
		f.wantEqual("two of ann's", query(2, everything, ann), []string{"m3", "m2"})
		f.wantEqual("26 bytes", query(9, 26, ""), []string{"m3", "m2"})
		f.wantEqual("25 bytes", query(9, 25, ""), []string{"m3"})
		f.wantEqual("at least one", query(9, 1, ""), []string{"m3"})
	}},
	{"a lease is shown without its id", func(f *fixture) {
		f.send("m1")
		f.lease(time.Minute)
		m := f.find(ben, "m1")
		f.wantEqual("lease id", m.LeaseID, "")
		f.wantEqual("lease end", m.LeaseUntil, start.Add(time.Minute))
		f.wantEqual("lease id by id", f.messages(ben, "m1")["m1"].LeaseID, "")
	}},
	{"one past its time shows as expired before any sweep", func(f *fixture) {
		f.send("m1")
		f.clock.Advance(ttl)
		f.wantState("m1", agentrelay.StatusExpired, 0)
		f.wantEqual("by id", f.messages(ann, "m1")["m1"].Status, agentrelay.StatusExpired)
		f.wantEqual("expired", len(f.query(store.Filter{Agent: ben, Status: agentrelay.StatusExpired})), 1)
		f.wantEqual("queued", len(f.query(store.Filter{Agent: ben, Status: agentrelay.StatusQueued})), 0)
	}},
	{"by id: what the agent sent or received", func(f *fixture) {
		f.send("m1", "m2")
		other := message("m3")
		other.From, other.To = ben, zoe
		f.enqueue(other)
		f.wantEqual("of the recipient", f.known(ben, "m1", "m2", "m3", "unknown"), []string{"m1", "m2", "m3"})
		f.wantEqual("of the sender", f.known(ann, "m1", "m3"), []string{"m1"})
		f.wantEqual("of another", f.known(zoe, "m1", "m3"), []string{"m3"})
		f.wantEqual("of nobody", f.known(ghost, "m1"), []string{})
		f.wantEqual("none asked", f.known(ann), []string{})
		f.wantEqual("twice asked", f.known(ann, "m1", "m1"), []string{"m1"})
		m := f.messages(ann, "m1")["m1"]
		f.wantEqual("message", [...]any{m.ID, m.From, m.To, m.TS.UnixMilli(), m.Kind, m.Status, m.Attempts, m.DeliveredAt.IsZero()},
			[...]any{"m1", ann, ben, start.UnixMilli(), agentrelay.KindMessage, agentrelay.StatusQueued, 0, true})
	}},
	{"by id: as many as a status call may name", func(f *fixture) {
		var ids []string
		for i := range agentrelay.MaxStatusIDs {
			ids = append(ids, fmt.Sprint("m", i))
		}
		f.send(ids[0], ids[len(ids)-1])
		f.wantEqual("found", f.known(ben, ids...), []string{"m0", "m199"})
	}},
}

func (f *fixture) messages(agent string, ids ...string) map[string]agentrelay.Message {
	f.testing.Helper()
	found, err := f.store.Messages(ctx, agent, ids)
	f.must(err)
	return found
}

// known returns the ids, sorted, that Messages finds for agent.
func (f *fixture) known(agent string, ids ...string) []string {
	f.testing.Helper()
	var known []string
	for id := range f.messages(agent, ids...) {
		known = append(known, id)
	}
	slices.Sort(known)
	return known
}
