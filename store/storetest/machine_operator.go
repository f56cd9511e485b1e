package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/agent-relay/agent-relay/store"
)

func (m *machine) requeue(t *rapid.T) {
	id := m.id(t)
	err := m.store.Requeue(ctx, id)
	m.wantSame(err, m.model.requeue(id))
	m.finish()
}

func (m *machine) cancel(t *rapid.T) {
	id := m.id(t)
	err := m.store.Cancel(ctx, id)
	m.wantSame(err, m.model.cancel(id))
	m.finish()
}

// administer changes an agent. What it answers must be the agent as check then
// finds it.
func (m *machine) administer(t *rapid.T) {
	name := rapid.SampledFrom([]string{zoe, ghost, zoe, ben}).Draw(t, "agent")
	var got store.Agent
	var err, want error
	switch rapid.SampledFrom([]string{"add key", "rotate", "add", "update", "revoke", "used", "remove"}).Draw(t, "change") {
	case "add":
		p, k := m.patch(t), m.key(t)
		got, err = m.store.AddAgent(ctx, name, p, k)
		want = m.model.addAgent(name, p, k)
	case "update":
		p := m.patch(t)
		got, err = m.store.UpdateAgent(ctx, name, p)
		want = m.model.updateAgent(name, p)
	case "add key":
		k := m.key(t)
		got, err = m.store.AddKey(ctx, name, k)
		want = m.model.addKey(name, k)
	case "rotate":
		k, end := m.key(t), m.clock.Now().Add(m.overlap(t))
		got, err = m.store.RotateKey(ctx, name, k, end)
		want = m.model.rotateKey(name, k, end)
	case "revoke":
		id := m.keyID(t, name)
		got, err = m.store.RevokeKey(ctx, name, id)
		want = m.model.revokeKey(name, id)
	case "used":
		id, at := m.keyID(t, name), m.clock.Now().Add(-m.overlap(t))
		m.must(m.store.Used(ctx, map[store.KeyName]time.Time{{Agent: name, ID: id}: at}))
		m.model.used(name, id, at)
		return
	case "remove":
		m.wantSame(m.store.RemoveAgent(ctx, name), m.model.removeAgent(name))
		return
	}
	if m.wantSame(err, want) {
		m.wantEqual("answer", got, m.model.agent(name))
	}
}

func (m *machine) patch(t *rapid.T) (p store.AgentPatch) {
	p.Description = somePatch(t, "description", "", "does things")
	p.AllowedTargets = somePatch(t, "targets", nil, []string{}, []string{ann, ben})
	p.MaxQueued = somePatch(t, "most", int64(3))
	return p
}

func somePatch[T any](t *rapid.T, label string, values ...T) store.Patch[T] {
	i := rapid.IntRange(-2, len(values)-1).Draw(t, label)
	if i < 0 {
		return store.Patch[T]{Set: i == -1}
	}
	return store.Patch[T]{Set: true, Value: &values[i]}
}

func (m *machine) key(t *rapid.T) store.Key {
	m.keys++
	id := fmt.Sprintf("key-%04d", m.keys)
	k := store.Key{ID: id, Secret: store.Secret("secret of " + id)}
	if rapid.Bool().Draw(t, "ends") {
		k.NotAfter = m.clock.Now().Add(time.Millisecond + m.overlap(t))
	}
	return k
}

func (m *machine) keyID(t *rapid.T, agent string) string {
	ids := []string{"unknown"}
	for _, k := range m.model.inbox(agent).set.Keys {
		ids = append(ids, k.ID)
	}
	return pick(t, "key", ids)
}

func (m *machine) overlap(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{time.Hour, 0, time.Minute, 48 * time.Hour}).Draw(t, "overlap")
}
