package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// The agents of the examples. ann sends to ben; zoe is a third party. ghost
// never registers.
const (
	ann   = "ann"
	ben   = "ben"
	zoe   = "zoe"
	ghost = "ghost"
)

// everything is a limit that no page of the suite reaches.
const everything = 1 << 30

// fixture is an open store with its clock, and short forms of the calls that
// end the test when they fail.
type fixture struct {
	testing  TB
	open     Opener
	dir      string
	options  store.Options
	clock    *Clock
	observed *observed
	store    store.Store
	cursors  map[string]string // the end of each inbox as unseen last saw it
}

// newFixture opens a store and registers ann, ben and zoe.
func newFixture(t *testing.T, open Opener, dir string, o store.Options) *fixture {
	f := openFixture(t, open, dir, o)
	for _, agent := range []string{ann, ben, zoe} {
		f.must(f.store.Register(ctx, agent))
	}
	return f
}

func openFixture(t TB, open Opener, dir string, o store.Options) *fixture {
	f := &fixture{
		testing: t, open: open, dir: dir, options: o,
		clock: NewClock(start), observed: &observed{arrivals: map[string]int{}}, cursors: map[string]string{},
	}
	f.options.Clock = f.clock
	f.options.Observe = f.observed.observe
	f.store = open(t, dir, f.options)
	t.Cleanup(func() { f.must(f.store.Close()) })
	return f
}

// reopen closes the store and opens it again after down, which only the wall
// sees.
func (f *fixture) reopen(down time.Duration) {
	f.testing.Helper()
	f.must(f.store.Close())
	f.clock.Jump(down)
	f.store = f.open(f.testing, f.dir, f.options)
}

func (f *fixture) must(err error) {
	f.testing.Helper()
	if err != nil {
		f.testing.Fatalf("unexpected error: %v", err)
	}
}

func (f *fixture) wantError(err error, want error) {
	f.testing.Helper()
	if !errors.Is(err, want) {
		f.testing.Fatalf("got error %v, want %v", err, want)
	}
}

func (f *fixture) wantEqual(what string, got, want any) {
	f.testing.Helper()
	if reflect.DeepEqual(want, got) {
		return // mostly, and much faster than cmp
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		f.testing.Fatalf("%s differs (-want +got):\n%s", what, diff)
	}
}

// message is a message from ann to ben.
func message(id string) agentrelay.Message {
	return agentrelay.Message{
		ID: id, From: ann, To: ben, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage,
		Body: json.RawMessage(fmt.Sprintf(`{"text":%q}`, id)),
	}
}

// send stores messages from ann to ben.
func (f *fixture) send(ids ...string) {
	f.testing.Helper()
	for _, id := range ids {
		f.enqueue(message(id))
	}
}

func (f *fixture) enqueue(m agentrelay.Message) store.Enqueued {
	f.testing.Helper()
	e, err := f.store.Enqueue(ctx, m)
	f.must(err)
	return e
}

func (f *fixture) poll(agent, since string) store.Page {
	f.testing.Helper()
	return f.pollPage(store.PollQuery{Agent: agent, Since: since, Limit: everything, MaxBytes: everything})
}

func (f *fixture) pollPage(q store.PollQuery) store.Page {
	f.testing.Helper()
	page, err := f.store.Poll(ctx, q)
	f.must(err)
	return page
}

// wantInbox checks what a poll from the beginning returns.
func (f *fixture) wantInbox(agent string, ids ...string) {
	f.testing.Helper()
	f.wantEqual("inbox of "+agent, idsOf(f.poll(agent, "").Messages), ids)
}

// unseen returns what agent polls after the cursor of the last call.
func (f *fixture) unseen(agent string) []agentrelay.Message {
	f.testing.Helper()
	page := f.poll(agent, f.cursors[agent])
	if page.Reset {
		f.testing.Fatalf("the cursor %q of %s was not accepted", f.cursors[agent], agent)
	}
	f.cursors[agent] = page.Cursor
	return page.Messages
}

func (f *fixture) query(filter store.Filter) []agentrelay.Message {
	f.testing.Helper()
	filter.Limit, filter.MaxBytes = everything, everything
	list, err := f.store.Query(ctx, filter)
	f.must(err)
	return list
}

// find returns a message of agent's inbox, through Query.
func (f *fixture) find(agent, id string) agentrelay.Message {
	f.testing.Helper()
	for _, m := range f.query(store.Filter{Agent: agent}) {
		if m.ID == id {
			return m
		}
	}
	f.testing.Fatalf("the inbox of %s has no message %s", agent, id)
	return agentrelay.Message{}
}

// wantState checks status and attempts of a message to ben.
func (f *fixture) wantState(id string, status agentrelay.Status, attempts int) {
	f.testing.Helper()
	m := f.find(ben, id)
	if m.Status != status || m.Attempts != attempts {
		f.testing.Fatalf("message %s is %s with %d attempts, want %s with %d", id, m.Status, m.Attempts, status, attempts)
	}
}

// lease takes one message of ben's inbox.
func (f *fixture) lease(d time.Duration) store.Leased {
	f.testing.Helper()
	list := f.leaseAll(ben, 1, d)
	if len(list) != 1 {
		f.testing.Fatalf("leased %d messages, want 1", len(list))
	}
	return list[0]
}

func (f *fixture) leaseAll(agent string, limit int, d time.Duration) []store.Leased {
	f.testing.Helper()
	list, err := f.store.Lease(ctx, store.LeaseRequest{Agent: agent, Limit: limit, MaxBytes: everything, For: d})
	f.must(err)
	return list
}

// settle settles a lease as its holder.
func (f *fixture) settle(m store.Leased, outcome agentrelay.Outcome) (store.Settled, error) {
	return f.store.Settle(ctx, store.Settlement{Agent: m.To, ID: m.ID, LeaseID: m.LeaseID, Outcome: outcome})
}

func (f *fixture) wantSettled(m store.Leased, outcome agentrelay.Outcome, want store.Settled) {
	f.testing.Helper()
	got, err := f.settle(m, outcome)
	f.must(err)
	f.wantEqual("settlement", got, want)
}

func (f *fixture) renew(m store.Leased, d time.Duration) (time.Time, error) {
	return f.store.Renew(ctx, store.Renewal{Agent: m.To, ID: m.ID, LeaseID: m.LeaseID, For: d})
}

func (f *fixture) acknowledge(a store.Acknowledgement) string {
	f.testing.Helper()
	id, err := f.store.Acknowledge(ctx, a)
	f.must(err)
	return id
}

// sweep sweeps until nothing is due.
func (f *fixture) sweep() (next time.Duration) {
	f.testing.Helper()
	for range 1000 {
		next, err := f.store.Sweep(ctx)
		f.must(err)
		if next > 0 {
			return next
		}
	}
	f.testing.Fatalf("the sweep finds no end")
	return 0
}

// wantReceipt checks the one receipt about message id in agent's inbox. text
// is the beginning of its error; empty is a receipt of success.
func (f *fixture) wantReceipt(agent, from, id, text string) agentrelay.Message {
	f.testing.Helper()
	receipts := f.receipts(agent, id)
	if len(receipts) != 1 {
		f.testing.Fatalf("%s got %d receipts about %s, want 1", agent, len(receipts), id)
	}
	r := receipts[0]
	f.wantEqual("receipt", r, agentrelay.Message{
		ID: r.ID, TS: r.TS, Body: r.Body, Status: r.Status, Attempts: r.Attempts, LeaseUntil: r.LeaseUntil, DeliveredAt: r.DeliveredAt,
		From: from, To: agent, Type: agentrelay.TypeAck, Kind: agentrelay.KindMessage, ReplyTo: id,
	})
	f.wantReceiptBody(r.Body, text != "", text)
	return r
}

// wantReceiptBody checks a receipt's body; its error begins with text.
func (f *fixture) wantReceiptBody(body json.RawMessage, failed bool, text string) {
	f.testing.Helper()
	if !failed {
		f.wantEqual("body of the receipt", string(body), `{"status":"ok"}`)
		return
	}
	var got struct{ Status, Error *string }
	f.must(json.Unmarshal(body, &got))
	if got.Status == nil || *got.Status != "error" || got.Error == nil || !strings.HasPrefix(*got.Error, text) {
		f.testing.Fatalf("body of the receipt is %s, want status error and an error that begins with %q", body, text)
	}
}

func (f *fixture) receipts(agent, id string) []agentrelay.Message {
	f.testing.Helper()
	var list []agentrelay.Message
	for _, m := range f.query(store.Filter{Agent: agent}) {
		if m.Type == agentrelay.TypeAck && m.ReplyTo == id {
			list = append(list, m)
		}
	}
	return list
}

func (f *fixture) wantNoReceipt(agent, id string) {
	f.testing.Helper()
	if list := f.receipts(agent, id); len(list) != 0 {
		f.testing.Fatalf("%s got a receipt about %s that nobody owed: %s", agent, id, list[0].Body)
	}
}

func idsOf(list []agentrelay.Message) []string {
	ids := make([]string, len(list))
	for i, m := range list {
		ids[i] = m.ID
	}
	return ids
}

func leasedIDs(list []store.Leased) []string {
	ids := make([]string, len(list))
	for i, m := range list {
		ids[i] = m.ID
	}
	return ids
}

// cursor is the text of a cursor of agent's inbox.
func (f *fixture) cursor(agent string, position int64) string {
	return agentrelay.Cursor{Tag: agentrelay.CursorTag(f.store.Epoch(), agent), Position: position}.String()
}
