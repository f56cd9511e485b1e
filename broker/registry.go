package broker

import (
	"maps"
	"slices"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// registry is the registered agents, their keys, and when both were last seen.
// The store keeps it; this copy answers.
type registry struct {
	clock store.Clock
	// tell is told who comes and goes.
	tell func(...Event)

	mu        sync.RWMutex
	heartbeat time.Duration
	agents    map[string]*presence
	stale     chan struct{} // something is to be persisted
	came      chan struct{} // somebody is online who was not
}

type presence struct {
	times
	// online is what was last told.
	online bool
	// held is set for who is no agent that asks, but a part of the broker: it is
	// online while up.
	held, up bool
	// agent is as the store has it, but for its times.
	agent store.Agent
	// keys are those of agent. The slice is replaced, never changed.
	keys []*ownKey
}

// ownKey is a key of one agent. Key does not change.
type ownKey struct {
	store.Key
	times // of use; the registry's lock guards them
}

// times are when something was last seen, and what the store knows of that.
type times struct{ seen, persisted time.Time }

func newRegistry(agents []store.Agent, clock store.Clock, heartbeat time.Duration) *registry {
	r := &registry{
		clock: clock, heartbeat: heartbeat, agents: map[string]*presence{}, tell: func(...Event) {},
		stale: make(chan struct{}, 1), came: make(chan struct{}, 1),
	}
	for _, a := range agents {
		p := &presence{times: times{a.LastSeen, a.LastSeen}}
		p.set(a)
		p.online = r.online(p)
		r.agents[a.Name] = p
	}
	signal(r.came)
	return r
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// set takes over what the store has.
func (p *presence) set(a store.Agent) {
	keys := make([]*ownKey, len(a.Keys))
	for i, k := range a.Keys {
		keys[i] = &ownKey{Key: k, times: times{k.LastUsed, k.LastUsed}}
		for _, old := range p.keys {
			if old.ID == k.ID {
				keys[i].times = old.times
			}
		}
	}
	p.agent, p.keys = a, keys
}

// see notes a request of an agent, signed with one of its keys if it has some.
// Names that are not registered are passed over, so that memory is bounded by
// the registry.
func (r *registry) see(agent string, key *ownKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.agents[agent]
	if p == nil {
		return
	}
	now := r.clock.Now()
	p.seen = now
	old := p.stale(persistEvery)
	if key != nil {
		key.seen = now
		old = old || key.stale(persistEvery)
	}
	if old {
		signal(r.stale)
	}
	r.arrive(agent, p, now)
}

// arrive tells that an agent is online, if it was not.
func (r *registry) arrive(agent string, p *presence, now time.Time) {
	if !p.online {
		p.online = true
		r.tell(Event{Kind: AgentOnline, Agent: agent, At: now})
		signal(r.came)
	}
}

// stale reports whether seen has parted from what the store knows; a clock
// that was set back counts too.
func (p *times) stale(by time.Duration) bool {
	return p.seen.Sub(p.persisted).Abs() >= by
}

// add notes that the store registered an agent that just asked for it.
func (r *registry) add(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	p := r.agents[agent]
	if p == nil {
		p = &presence{agent: store.Agent{Name: agent}}
		r.agents[agent] = p
		r.tell(Event{Kind: AgentRegistered, Agent: agent, At: now})
	}
	p.times = times{now, now}
	r.arrive(agent, p, now)
}

// set takes over an agent that an operator added or changed, and returns the
// secrets that it had and that are no longer good.
func (r *registry) set(a store.Agent) (ended []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.agents[a.Name], r.clock.Now()
	if p == nil {
		p = &presence{}
		r.agents[a.Name] = p
		r.tell(Event{Kind: AgentRegistered, Agent: a.Name, At: now})
	}
	before := p.keys
	p.set(a)
	for _, old := range before {
		if !slices.ContainsFunc(p.keys, func(k *ownKey) bool { return k.ID == old.ID && k.Good(now) }) {
			ended = append(ended, string(old.Secret))
		}
	}
	return ended
}

// remove forgets an agent, and returns the secrets that it had.
func (r *registry) remove(agent string) (ended []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.agents[agent]
	if p == nil {
		return nil
	}
	delete(r.agents, agent)
	if p.online {
		r.tell(Event{Kind: AgentOffline, Agent: agent, At: r.clock.Now()})
	}
	for _, k := range p.keys {
		ended = append(ended, string(k.Secret))
	}
	return ended
}

// hold says whether a registered agent is online, from now on.
func (r *registry) hold(agent string, up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.agents[agent], r.clock.Now()
	if p == nil {
		return
	}
	if up || p.up {
		p.seen = now
		if p.stale(persistEvery) {
			signal(r.stale)
		}
	}
	p.held, p.up = true, up
	switch {
	case up:
		r.arrive(agent, p, now)
	case p.online:
		p.online = false
		r.tell(Event{Kind: AgentOffline, Agent: agent, At: now})
	}
}

func (r *registry) knows(agent string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agents[agent] != nil
}

// keys returns an agent's own keys, ended ones too; not keyed: it was never
// given any.
func (r *registry) keys(agent string) (keys []*ownKey, keyed bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.agents[agent]
	if p == nil {
		return nil, false
	}
	return p.keys, p.agent.Keyed
}

// targets are the only ones to which an agent may send, as the store has it;
// nil are all.
func (r *registry) targets(agent string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if p := r.agents[agent]; p != nil {
		return p.agent.AllowedTargets
	}
	return nil
}

// take returns what the store does not know by now, and counts it as known.
func (r *registry) take(older time.Duration) (seen map[string]time.Time, used map[store.KeyName]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, used = map[string]time.Time{}, map[store.KeyName]time.Time{}
	for name, p := range r.agents {
		if p.take(older) {
			seen[name] = p.seen
		}
		for _, k := range p.keys {
			if k.take(older) {
				used[store.KeyName{Agent: name, ID: k.ID}] = k.seen
			}
		}
	}
	return seen, used
}

func (t *times) take(older time.Duration) bool {
	if t.seen == t.persisted || !t.stale(older) {
		return false
	}
	t.persisted = t.seen
	return true
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
	return agentrelay.Peer{Agent: agent, LastSeen: r.lastSeen(p), Online: r.online(p)}
}

func (r *registry) lastSeen(p *presence) time.Time {
	if p.held && p.up {
		return r.clock.Now()
	}
	return p.seen
}

func (r *registry) online(p *presence) bool {
	if p.held {
		return p.up
	}
	return !p.seen.IsZero() && r.clock.Now().Sub(p.seen) <= r.heartbeat
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

func (r *registry) names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.agents))
}

// info is what the registry knows of an agent.
func (r *registry) info(agent string) AgentInfo {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := r.agents[agent]
	if p == nil {
		return AgentInfo{Agent: agent}
	}
	info := AgentInfo{
		Agent: agent, Description: p.agent.Description, MaxQueued: p.agent.MaxQueued,
		Registered: true, Online: r.online(p), LastSeen: r.lastSeen(p),
	}
	for _, k := range p.keys {
		info.Keys = append(info.Keys, KeyInfo{ID: k.ID, Created: k.Created, NotAfter: k.NotAfter, LastUsed: k.seen})
	}
	return info
}
