package broker

import (
	"context"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

const (
	// persistEvery is how often an agent's lastSeen, and a key's last use, is
	// written.
	persistEvery = time.Minute
	// lapseSlack is how late an agent that went is noticed, so that many that go
	// at about one time are found together.
	lapseSlack = 100 * time.Millisecond
)

// Register makes agent known to all, and returns it as others see it now.
func (b *Broker) Register(ctx context.Context, agent string) (agentrelay.Peer, error) {
	if !b.registry.knows(agent) {
		// Nobody may remove it between the store and the registry.
		b.administering.RLock()
		defer b.administering.RUnlock()
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

// Introduce makes agent known to all without its asking.
func (b *Broker) Introduce(ctx context.Context, agent string) error {
	if b.registry.knows(agent) {
		return nil
	}
	b.administering.RLock()
	defer b.administering.RUnlock()
	ctx, cancel := detach(ctx)
	defer cancel()
	if err := b.store.Register(ctx, agent); err != nil {
		return err
	}
	b.registry.set(store.Agent{Name: agent})
	return nil
}

// Hold says whether a registered peer that the broker itself provides is
// online. From the first call on its own requests no longer do.
func (b *Broker) Hold(agent string, online bool) { b.registry.hold(agent, online) }

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
	seen, used := b.registry.take(older)
	ctx, cancel := detach(ctx)
	defer cancel()
	if len(seen) > 0 {
		b.background("persist lastSeen", b.store.Touch(ctx, seen))
	}
	if len(used) > 0 {
		b.background("persist when keys were used", b.store.Used(ctx, used))
	}
}

// lapse tells who is no longer online. It returns when the next one may be;
// none is false if nobody is online.
func (r *registry) lapse() (next time.Duration, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for name, p := range r.agents {
		if !p.online {
			continue
		}
		if p.online = r.online(p); !p.online {
			r.tell(Event{Kind: AgentOffline, Agent: name, At: now})
			continue
		}
		if p.held {
			continue
		}
		if left := p.seen.Add(r.heartbeat).Sub(now); !some || left < next {
			next, some = left, true
		}
	}
	return next, some
}

// setHeartbeat changes how long an agent is online.
func (r *registry) setHeartbeat(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heartbeat = d
	signal(r.came)
}

// watchPresence looks for agents that are no longer online, when there may be
// some.
func (b *Broker) watchPresence(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.registry.came:
		case <-ctx.Done():
			return
		}
		if next, some := b.registry.lapse(); some {
			timer.Reset(max(next, 0) + lapseSlack)
		}
	}
}
