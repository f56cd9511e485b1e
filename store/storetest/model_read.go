package storetest

import (
	"cmp"
	"slices"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// view is a message as it is shown.
func (m *model) view(r *row) agentrelay.Message {
	v := r.Message
	switch {
	case r.Status == agentrelay.StatusLeased:
		v.LeaseUntil, _ = m.leaseEnd(r)
	case r.Status == agentrelay.StatusQueued && !r.expires.After(m.clock.Now()):
		v.Status = agentrelay.StatusExpired
	}
	return v
}

// waiting returns the messages of an inbox that can be delivered, in order.
func (m *model) waiting(agent string, after int64) []*row {
	var list []*row
	for _, r := range m.rows {
		if r.To == agent && r.position > after && r.Status == agentrelay.StatusQueued && r.expires.After(m.clock.Now()) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return cmp.Compare(a.position, b.position) })
	return list
}

// page cuts a list to its limits.
func page(list []*row, limit, maxBytes int) []*row {
	size := 0
	for i, r := range list {
		if size += len(r.Body); i == limit || i > 0 && size > maxBytes {
			return list[:i]
		}
	}
	return list
}

func (m *model) poll(q store.PollQuery) store.Page {
	after, ok := m.position(q.Agent, q.Since)
	answer := store.Page{Cursor: q.Since, Reset: !ok}
	for _, r := range page(m.waiting(q.Agent, after), q.Limit, q.MaxBytes) {
		answer.Messages = append(answer.Messages, m.view(r))
		answer.Cursor = m.cursor(q.Agent, r.position)
	}
	return answer
}

func (m *model) cursor(agent string, position int64) string {
	return agentrelay.Cursor{Tag: agentrelay.CursorTag(m.epoch, agent), Position: position}.String()
}

// position is what a since stands for.
func (m *model) position(agent, since string) (position int64, ok bool) {
	if since == "" {
		return 0, true
	}
	if c, ok := agentrelay.ParseCursor(since); ok {
		if c.Tag == agentrelay.CursorTag(m.epoch, agent) && c.Position <= m.inbox(agent).position {
			return c.Position, true
		}
		return 0, false
	}
	r := m.rows[since]
	if r == nil || r.To != agent || r.stage != retained || !r.expires.After(m.clock.Now()) {
		return 0, false
	}
	return r.first, true
}

func (m *model) query(f store.Filter) []agentrelay.Message {
	var list []*row
	for _, r := range m.rows {
		v := m.view(r)
		if r.To == f.Agent && r.stage != erased && selects(f.ID, v.ID) && selects(f.Kind, v.Kind) && selects(f.Status, v.Status) &&
			selects(f.To, v.To) && selects(f.From, v.From) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *row) int { return cmp.Compare(b.first, a.first) })
	var views []agentrelay.Message
	for _, r := range page(list, f.Limit, f.MaxBytes) {
		views = append(views, m.view(r))
	}
	return views
}

func selects[T ~string](filter, value T) bool { return filter == "" || filter == value }

// messages returns what the protocol shows of a message by its id.
func (m *model) messages(agent string, ids []string) map[string]agentrelay.Message {
	found := map[string]agentrelay.Message{}
	for _, id := range ids {
		if r := m.rows[id]; r != nil && (r.From == agent || r.To == agent) {
			found[id] = outline(m.view(r))
		}
	}
	return found
}

// outline is what remains of a message without its body.
func outline(v agentrelay.Message) agentrelay.Message {
	return agentrelay.Message{
		ID: v.ID, From: v.From, To: v.To, TS: v.TS, Kind: v.Kind,
		Status: v.Status, Attempts: v.Attempts, DeliveredAt: v.DeliveredAt,
	}
}

// waits counts what counts toward the quota of an inbox.
func (m *model) waits(agent string) (n int, size int64) {
	for _, r := range m.rows {
		if r.To == agent && r.Status == agentrelay.StatusQueued && r.DeliveredAt.IsZero() && !r.notice {
			n++
			size += int64(len(r.Body))
		}
	}
	return n, size
}

func (m *model) registered() []store.Agent {
	var list []store.Agent
	for name, b := range m.agents {
		if b.registered {
			list = append(list, m.agent(name))
		}
	}
	slices.SortFunc(list, func(a, b store.Agent) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (m *model) agent(name string) store.Agent {
	b := m.agents[name]
	a := b.set
	a.Name, a.LastSeen = name, b.lastSeen
	a.Waiting, a.WaitingBytes = m.waits(name)
	a.Keys = slices.SortedFunc(slices.Values(a.Keys), func(a, b store.Key) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return a
}

func (m *model) backlog() map[string]store.Backlog {
	all := map[string]store.Backlog{}
	for _, r := range m.rows {
		b := all[r.To]
		switch r.Status {
		case agentrelay.StatusQueued:
			b.Queued++
		case agentrelay.StatusLeased:
			b.Leased++
		default:
			continue
		}
		all[r.To] = b
	}
	return all
}
