package storetest

import (
	"slices"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func (m *model) requeue(id string) error {
	r := m.rows[id]
	switch {
	case r == nil:
		return agentrelay.ErrNoSuchMessage
	case r.stage == erased:
		return agentrelay.ErrBadRequest
	}
	r.endLease()
	r.Attempts, r.Error, r.givenUp, r.receipt = 0, "", false, ""
	r.expires = m.clock.Now().Add(m.ttl)
	m.queue(r, false)
	return nil
}

func (m *model) cancel(id string) error {
	r := m.rows[id]
	switch {
	case r == nil:
		return agentrelay.ErrNoSuchMessage
	case r.Status == agentrelay.StatusFailed && r.Error == store.Cancelled:
		return nil
	}
	if status := m.view(r).Status; status != agentrelay.StatusQueued && status != agentrelay.StatusLeased {
		return agentrelay.ErrBadRequest
	}
	r.endLease()
	r.Status, r.Error = agentrelay.StatusFailed, store.Cancelled
	m.took(r, store.Event{Kind: store.EventFailed, Cancelled: true})
	if r.Type != agentrelay.TypeAck {
		m.send(r, true, store.Cancelled)
	}
	return nil
}

func (m *model) addAgent(name string, p store.AgentPatch, k store.Key) error {
	if m.inbox(name).set.Keyed {
		return agentrelay.ErrBadRequest
	}
	m.inbox(name).registered = true
	if err := m.updateAgent(name, p); err != nil {
		return err
	}
	return m.addKey(name, k)
}

func (m *model) updateAgent(name string, p store.AgentPatch) error {
	b := m.inbox(name)
	if !b.registered {
		return agentrelay.ErrNoSuchAgent
	}
	b.set = p.Over(b.set)
	return nil
}

func (m *model) removeAgent(name string) error {
	b := m.inbox(name)
	if !b.registered {
		return agentrelay.ErrNoSuchAgent
	}
	*b = inbox{position: b.position}
	return nil
}

func (m *model) addKey(name string, k store.Key) error {
	b, now := m.inbox(name), m.clock.Now()
	if !b.registered {
		return agentrelay.ErrNoSuchAgent
	}
	good := 0
	for i := range b.set.Keys {
		if b.set.Keys[i].Good(now) {
			good++
		}
	}
	if good >= store.MaxKeys {
		return agentrelay.ErrBadRequest
	}
	b.set.Keys = slices.DeleteFunc(b.set.Keys, func(k store.Key) bool {
		return !k.Good(now.Add(-store.EndedKeyTTL))
	})
	k.Created = now
	b.set.Keyed, b.set.Keys = true, append(b.set.Keys, k)
	return nil
}

func (m *model) rotateKey(name string, k store.Key, end time.Time) error {
	b := m.inbox(name)
	before := slices.Clone(b.set.Keys)
	for i := range b.set.Keys {
		if b.set.Keys[i].Good(end) {
			b.set.Keys[i].NotAfter = end
		}
	}
	err := m.addKey(name, k)
	if err != nil {
		b.set.Keys = before
	}
	return err
}

func (m *model) revokeKey(name, id string) error {
	b := m.inbox(name)
	if !b.registered {
		return agentrelay.ErrNoSuchAgent
	}
	i := slices.IndexFunc(b.set.Keys, func(k store.Key) bool { return k.ID == id })
	if i < 0 {
		return agentrelay.ErrBadRequest
	}
	b.set.Keys = slices.Delete(b.set.Keys, i, i+1)
	return nil
}

func (m *model) used(name, id string, at time.Time) {
	keys := m.inbox(name).set.Keys
	for i := range keys {
		if keys[i].ID == id && keys[i].LastUsed.Before(at) {
			keys[i].LastUsed = at
		}
	}
}
