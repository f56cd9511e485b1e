package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// register makes an agent known or records that some were seen.
func (m *machine) register(t *rapid.T) {
	if rapid.Bool().Draw(t, "register") {
		m.seen(anyAgent(t), m.clock.Now())
		return
	}
	at := m.clock.Now().Add(time.Duration(rapid.IntRange(-9, 9).Draw(t, "minutes")) * time.Minute)
	seen := map[string]time.Time{anyAgent(t): at, anyAgent(t): at}
	m.must(m.store.Touch(ctx, seen))
	for agent := range seen {
		m.model.touch(agent, at)
	}
}

func (m *machine) seen(agent string, at time.Time) {
	m.must(m.store.Register(ctx, agent))
	m.model.register(agent, at)
}

func (m *machine) send(t *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(t, "messages") {
		msg := message(fmt.Sprint("m", len(m.sent)+1))
		msg.From = rapid.SampledFrom([]string{ann, ann, ann, ghost}).Draw(t, "from")
		msg.To = rapid.SampledFrom([]string{ben, ben, ben, ben, zoe}).Draw(t, "to")
		msg.Ack = rapid.Bool().Draw(t, "ack")
		msg.Kind = rapid.SampledFrom([]agentrelay.Kind{agentrelay.KindMessage, agentrelay.KindRequest}).Draw(t, "kind")
		msg.Body = json.RawMessage(strings.Repeat("7", rapid.SampledFrom([]int{20, 1, 40, 100}).Draw(t, "size")))
		m.sent = append(m.sent, msg)
		m.enqueue(msg)
	}
}

func (m *machine) sendAgain(t *rapid.T) {
	if len(m.sent) == 0 {
		m.send(t)
	}
	msg := pick(t, "message", m.sent)
	switch rapid.SampledFrom([]string{"same", "same", "body", "sender", "recipient"}).Draw(t, "change") {
	case "body":
		msg.Body = append(slices.Clone(msg.Body), ' ')
	case "sender":
		msg.From = "somebody"
	case "recipient":
		msg.To = ghost
	}
	m.enqueue(msg)
}

func (m *machine) enqueue(msg agentrelay.Message) {
	known, unfit := m.store.Known(ctx, msg)
	got, err := m.store.Enqueue(ctx, msg)
	want, refused := m.model.enqueue(msg)
	if m.wantSame(err, refused) {
		m.wantEqual("answer", got, want)
	}
	if m.wantSame(unfit, refused) {
		if !want.Duplicate {
			want = store.Enqueued{}
		}
		m.wantEqual("what was known", known, want)
	}
	m.finish()
}

func (m *machine) poll(t *rapid.T) {
	agent := anyAgent(t)
	q := store.PollQuery{Agent: agent, Since: m.since(t, agent)}
	q.Limit, q.MaxBytes = limits(t)
	got := m.pollPage(q)
	m.wantEqual(fmt.Sprintf("page after %q", q.Since), got, m.model.poll(q))
	m.cursors = append(m.cursors, got.Cursor)
}

// since is a cursor of some kind.
func (m *machine) since(t *rapid.T, agent string) string {
	switch rapid.SampledFrom([]string{"id", "position", "earlier", "none", "foreign", "garbage"}).Draw(t, "cursor") {
	case "position":
		return m.model.cursor(agent, rapid.Int64Range(0, m.model.inbox(agent).position+2).Draw(t, "position"))
	case "earlier":
		if len(m.cursors) > 0 {
			return pick(t, "cursor", m.cursors)
		}
	case "id":
		return m.id(t)
	case "foreign":
		return agentrelay.Cursor{Tag: agentrelay.CursorTag("another epoch", agent), Position: 1}.String()
	case "garbage":
		return rapid.SampledFrom([]string{"cursor:", "cursor:x:y", "0", "%", "cursor:" + m.model.epoch + ":1"}).Draw(t, "garbage")
	}
	return ""
}

func (m *machine) delivered(t *rapid.T) {
	ids := []string{m.id(t), m.id(t)}
	at := m.clock.Now().Add(-time.Duration(rapid.IntRange(1, 999).Draw(t, "ms")) * time.Millisecond)
	m.must(m.store.Delivered(ctx, ids, at))
	m.model.delivered(ids, at)
	m.finish()
}

func (m *machine) lease(t *rapid.T) {
	q := store.LeaseRequest{Agent: rapid.SampledFrom([]string{ben, ben, ben, ann, zoe, ghost}).Draw(t, "agent"), For: leaseTime(t)}
	q.Limit, q.MaxBytes = limits(t)
	got, err := m.store.Lease(ctx, q)
	m.must(err)
	var want []store.Leased
	for i, r := range page(m.model.waiting(q.Agent, 0), q.Limit, q.MaxBytes) {
		if i < len(got) {
			m.model.take(r, got[i].LeaseID, q.For)
			for _, g := range m.grants {
				if g.LeaseID == r.lease {
					m.testing.Fatalf("lease id %s was used twice", r.lease)
				}
			}
		}
		v := m.model.view(r)
		v.LeaseID = r.lease
		want = append(want, store.Leased{Message: v, First: r.firstHandOver})
	}
	m.wantEqual("leased", got, want)
	m.grants = append(m.grants, got...)
	m.finish()
}

// grant picks a lease, often one that lasts, and sometimes spoils it. There is
// none if nothing can be leased.
func (m *machine) grant(t *rapid.T) (g store.Leased, ok bool) {
	lasting := m.lasting()
	if len(lasting) == 0 {
		m.lease(t)
		lasting = m.lasting()
	}
	if len(m.grants) == 0 {
		return g, false
	}
	if len(lasting) == 0 || rapid.IntRange(0, 4).Draw(t, "any lease") == 4 {
		lasting = m.grants
	}
	g = pick(t, "lease", lasting)
	switch rapid.SampledFrom([]string{"", "", "", "", "agent", "message", "lease"}).Draw(t, "wrong") {
	case "agent":
		g.To = anyAgent(t)
	case "message":
		g.ID = m.id(t)
	case "lease":
		other := pick(t, "other lease", m.grants)
		g.LeaseID, g.First = other.LeaseID, other.First
	}
	return g, true
}

// lasting returns the leases that were not ended.
func (m *machine) lasting() []store.Leased {
	return slices.DeleteFunc(slices.Clone(m.grants), func(g store.Leased) bool {
		_, err := m.model.leased(g.To, g.ID, g.LeaseID)
		return err != nil
	})
}

func (m *machine) settle(t *rapid.T) {
	g, ok := m.grant(t)
	if !ok {
		return
	}
	s := store.Settlement{Agent: g.To, ID: g.ID, LeaseID: g.LeaseID}
	s.Outcome = rapid.SampledFrom([]agentrelay.Outcome{agentrelay.OutcomeRetry, agentrelay.OutcomeCompleted}).Draw(t, "outcome")
	s.Error = rapid.SampledFrom([]string{"", "it broke"}).Draw(t, "error")
	m.settleBoth(s)
}

// settleAgain repeats what was answered before.
func (m *machine) settleAgain(t *rapid.T) {
	if len(m.settled) == 0 {
		m.settle(t)
		return
	}
	m.settleBoth(pick(t, "settlement", m.settled))
}

func (m *machine) settleBoth(s store.Settlement) {
	got, err := m.store.Settle(ctx, s)
	want, refused := m.model.settle(s)
	if m.wantSame(err, refused) {
		m.wantEqual("answer", got, want)
		m.settled = append(m.settled, s)
	}
	m.finish()
}

func (m *machine) renew(t *rapid.T) {
	g, ok := m.grant(t)
	if !ok {
		return
	}
	n := store.Renewal{Agent: g.To, ID: g.ID, LeaseID: g.LeaseID, For: leaseTime(t)}
	got, err := m.store.Renew(ctx, n)
	want, refused := m.model.renew(n)
	if m.wantSame(err, refused) {
		m.wantEqual("end of the lease", got, want)
	}
	m.finish()
}

func (m *machine) release(t *rapid.T) {
	var list []store.Leased
	for range 3 {
		if g, ok := m.grant(t); ok {
			list = append(list, g)
		}
	}
	agent := ben
	if len(list) > 0 {
		agent = list[0].To
	}
	m.must(m.store.Release(ctx, agent, list))
	m.model.release(agent, list)
	m.finish()
}

func (m *machine) acknowledge(t *rapid.T) {
	a := store.Acknowledgement{Agent: anyAgent(t), ID: m.id(t)}
	if r := m.model.rows[a.ID]; r != nil && rapid.IntRange(0, 5).Draw(t, "right agent") > 0 {
		a.Agent = r.To
	}
	if a.Failed = rapid.Bool().Draw(t, "failed"); a.Failed {
		a.Error = rapid.SampledFrom([]string{"", `no "way"`}).Draw(t, "error")
	}
	got, err := m.store.Acknowledge(ctx, a)
	r, refused := m.model.acknowledge(a)
	ok := m.wantSame(err, refused)
	m.finish()
	if ok {
		m.wantEqual("receipt", got, r.receipt)
	}
}

func (m *machine) messages(t *rapid.T) {
	agent := anyAgent(t)
	ids := append(slices.Sorted(maps.Keys(m.model.rows)), "unknown")
	got := m.fixture.messages(agent, ids...)
	for id, msg := range got {
		got[id] = outline(msg)
	}
	m.wantEqual("messages of "+agent, got, m.model.messages(agent, ids))
}

func (m *machine) query(t *rapid.T) {
	f := store.Filter{
		Agent:  anyAgent(t),
		Kind:   rapid.SampledFrom([]agentrelay.Kind{"", "", agentrelay.KindMessage, agentrelay.KindRequest}).Draw(t, "kind"),
		Status: rapid.SampledFrom([]agentrelay.Status{"", agentrelay.StatusQueued, agentrelay.StatusLeased, agentrelay.StatusDone, agentrelay.StatusFailed, agentrelay.StatusExpired}).Draw(t, "status"),
		From:   rapid.SampledFrom([]string{"", "", ann, ben, ghost}).Draw(t, "from"),
		To:     rapid.SampledFrom([]string{"", "", "", ann, ben}).Draw(t, "to"),
	}
	if rapid.IntRange(0, 3).Draw(t, "by id") == 0 {
		f.ID = m.id(t)
	}
	f.Limit, f.MaxBytes = limits(t)
	got, err := m.store.Query(ctx, f)
	m.must(err)
	m.wantEqual(fmt.Sprintf("query %+v", f), m.blankWords(got), m.blankWords(m.model.query(f)))
}

func (m *machine) advance(t *rapid.T) {
	m.clock.Advance(rapid.SampledFrom([]time.Duration{
		time.Second, 29 * time.Second, time.Minute, time.Second, time.Minute, time.Hour, 10 * time.Minute, time.Millisecond,
		2 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, 10 * 24 * time.Hour,
	}).Draw(t, "time"))
	m.sweep()
}

func (m *machine) jump(t *rapid.T) {
	m.clock.Jump(m.jumpTime(t))
	m.sweep()
}

// reopen closes the store, for some time or not.
func (m *machine) reopen(t *rapid.T) {
	var down time.Duration
	if rapid.Bool().Draw(t, "down") {
		down = m.jumpTime(t)
	}
	m.fixture.reopen(down)
	m.wantEqual("epoch", m.store.Epoch(), m.model.epoch)
	m.model.open()
	m.sweep()
}

// jumpTime is how far the wall jumps. A wall that is wrong is often set right
// again.
func (m *machine) jumpTime(t *rapid.T) time.Duration {
	right := start.Add(m.clock.Elapsed() - m.began)
	if wrong := m.clock.Now().Sub(right); wrong != 0 && rapid.Bool().Draw(t, "set right") {
		return -wrong
	}
	return rapid.SampledFrom([]time.Duration{1, -1}).Draw(t, "sign") * rapid.SampledFrom([]time.Duration{
		time.Minute, 8 * 24 * time.Hour, 3 * time.Hour, 2 * time.Second, time.Hour, 20 * 24 * time.Hour,
	}).Draw(t, "jump")
}

func leaseTime(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{time.Minute, time.Second, 10 * time.Minute, 24 * time.Hour}).Draw(t, "lease time")
}

func limits(t *rapid.T) (limit, maxBytes int) {
	return rapid.SampledFrom([]int{3, 1, everything, 2}).Draw(t, "limit"),
		rapid.SampledFrom([]int{everything, 60, 1, 100}).Draw(t, "max bytes")
}

func anyAgent(t *rapid.T) string {
	return rapid.SampledFrom([]string{ben, ann, zoe, ghost}).Draw(t, "agent")
}

// id is that of a message which is or was there, or of none.
func (m *machine) id(t *rapid.T) string {
	ids := []string{"unknown"}
	for _, r := range m.model.byFirst() {
		ids = append(ids, r.ID)
	}
	for _, msg := range m.sent {
		ids = append(ids, msg.ID)
	}
	return pick(t, "id", ids)
}

// pick draws one of what there is so far, more often of the latest.
func pick[T any](t *rapid.T, label string, list []T) T {
	list = slices.Clone(list)
	slices.Reverse(list) // rapid draws more often from the beginning
	return rapid.SampledFrom(list).Draw(t, label)
}
