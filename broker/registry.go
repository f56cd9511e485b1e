package broker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agnivade/levenshtein"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// persistEvery is how often an agent's lastSeen is written.
const persistEvery = time.Minute

// maxSuggestions bounds the near names of a recipient that is not registered.
const maxSuggestions = 3

// registry is the registered agents and when they were last seen. The store
// keeps it; this copy answers.
type registry struct {
	clock     store.Clock
	heartbeat time.Duration

	mu     sync.RWMutex
	agents map[string]*presence
	stale  chan struct{} // something is to be persisted
}

type presence struct {
	seen, persisted time.Time
}

func newRegistry(agents []store.Agent, clock store.Clock, heartbeat time.Duration) *registry {
	r := &registry{clock: clock, heartbeat: heartbeat, agents: map[string]*presence{}, stale: make(chan struct{}, 1)}
	for _, a := range agents {
		r.agents[a.Name] = &presence{seen: a.LastSeen, persisted: a.LastSeen}
	}
	return r
}

// see notes a request of an agent. Names that are not registered are passed
// over, so that memory is bounded by the registry.
func (r *registry) see(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.agents[agent]
	if p == nil {
		return
	}
	p.seen = r.clock.Now()
	if p.stale(persistEvery) {
		select {
		case r.stale <- struct{}{}:
		default:
		}
	}
}

// stale reports whether seen has parted from what the store knows; a clock
// that was set back counts too.
func (p *presence) stale(by time.Duration) bool {
	return p.seen.Sub(p.persisted).Abs() >= by
}

// add notes that the store registered an agent.
func (r *registry) add(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.agents[agent] = &presence{seen: now, persisted: now}
}

func (r *registry) knows(agent string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[agent] != nil
}

// take returns what the store does not know by now, and counts it as known.
func (r *registry) take(older time.Duration) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := map[string]time.Time{}
	for name, p := range r.agents {
		if p.seen != p.persisted && p.stale(older) {
			taken[name] = p.seen
			p.persisted = p.seen
		}
	}
	return taken
}

func (r *registry) peer(agent string) agentrelay.Peer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.describe(agent)
}

func (r *registry) describe(agent string) agentrelay.Peer {
	p := r.agents[agent]
	if p == nil {
		return agentrelay.Peer{Agent: agent}
	}
	return agentrelay.Peer{
		Agent: agent, LastSeen: p.seen,
		Online: !p.seen.IsZero() && r.clock.Now().Sub(p.seen) <= r.heartbeat,
	}
}

func (r *registry) peers() []agentrelay.Peer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := make([]agentrelay.Peer, 0, len(r.agents))
	for _, name := range slices.Sorted(maps.Keys(r.agents)) {
		list = append(list, r.describe(name))
	}
	return list
}

// near returns the registered names most like one that is not: first those
// that differ in case and separators alone, then those a few edits away.
func (r *registry) near(name string) []string {
	type candidate struct {
		name     string
		distance int
	}
	plain := plainName(name)
	limit := min(max(2, len(plain)/3), len(plain)/2)
	var found []candidate
	r.mu.RLock()
	for known := range r.agents {
		if d := levenshtein.ComputeDistance(plain, plainName(known)); d <= limit {
			found = append(found, candidate{known, d})
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	names := []string{}
	for _, c := range found[:min(len(found), maxSuggestions)] {
		names = append(names, c.name)
	}
	return names
}

func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
}

// Register makes agent known to all, and returns it as others see it now.
func (b *Broker) Register(ctx context.Context, agent string) (agentrelay.Peer, error) {
	if !b.registry.knows(agent) {
		ctx, cancel := detach(ctx)
		defer cancel()
		if err := b.store.Register(ctx, agent); err != nil {
			return agentrelay.Peer{}, err
		}
		b.registry.add(agent)
		b.log.Info("agent registered", "agent", agent)
	}
	return b.registry.peer(agent), nil
}

// Peers lists the registered agents by name.
func (b *Broker) Peers() []agentrelay.Peer { return b.registry.peers() }

// recordPresence persists lastSeen, at most once a minute for each agent, and
// once more at the end.
func (b *Broker) recordPresence(ctx context.Context) {
	for {
		select {
		case <-b.registry.stale:
			b.persistPresence(ctx, persistEvery)
		case <-ctx.Done():
			b.persistPresence(ctx, 0)
			return
		}
	}
}

func (b *Broker) persistPresence(ctx context.Context, older time.Duration) {
	seen := b.registry.take(older)
	if len(seen) == 0 {
		return
	}
	ctx, cancel := detach(ctx)
	defer cancel()
	b.background("persist lastSeen", b.store.Touch(ctx, seen))
}
