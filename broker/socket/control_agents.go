package socket

import (
	"context"
	"time"

	"github.com/agent-relay/agent-relay/broker"
)

const (
	// defaultOverlap is how long old keys last after a rotation.
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 366 * 24 * time.Hour
)

func (c *Control) listAgents(ctx context.Context, _ params) (result, error) {
	agents, err := c.o.Broker.AgentInfos(ctx)
	if err != nil {
		return result{}, err
	}
	list := make([]agentData, len(agents))
	for i, a := range agents {
		list[i] = newAgentData(a)
	}
	return dataResult("agents", list)
}

func (c *Control) getAgent(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	return agentResult(c.o.Broker.AgentInfo(ctx, name))
}

func agentResult(a broker.AgentInfo, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	return dataResult("agent", newAgentData(a))
}

func (c *Control) addAgent(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	patch, err := p.patch()
	if err != nil {
		return result{}, err
	}
	k, err := c.o.Broker.AddAgent(ctx, name, patch)
	if err != nil {
		return result{}, err
	}
	return dataResult("key", newKeyData{Agent: k.Agent, ID: k.ID, Secret: k.Secret})
}

func (c *Control) updateAgent(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	patch, err := p.patch()
	if err != nil {
		return result{}, err
	}
	return agentResult(c.o.Broker.UpdateAgent(ctx, name, patch))
}

func (c *Control) removeAgent(ctx context.Context, p params) (result, error) {
	return c.onAgent(ctx, p, c.o.Broker.RemoveAgent)
}

func (c *Control) unlockAgent(ctx context.Context, p params) (result, error) {
	return c.onAgent(ctx, p, c.o.Broker.UnlockAgent)
}

func (c *Control) onAgent(ctx context.Context, p params, do func(context.Context, string) error) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	return okResult, do(ctx, name)
}

func (c *Control) addKey(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	notAfter, err := p.instant("not_after")
	if err != nil {
		return result{}, err
	}
	return keyResult(c.o.Broker.AddKey(ctx, name, notAfter))
}

func (c *Control) rotateKey(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	overlap := defaultOverlap
	seconds, err := p.integer("overlap_seconds", 0, int64(maxOverlap/time.Second))
	if err != nil {
		return result{}, err
	}
	if seconds != nil {
		overlap = time.Duration(*seconds) * time.Second
	}
	return keyResult(c.o.Broker.RotateKey(ctx, name, overlap))
}

func keyResult(k broker.Key, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	notAfter := moment(k.NotAfter)
	return dataResult("key", newKeyData{k.Agent, k.ID, k.Secret, &notAfter})
}

func (c *Control) revokeKey(ctx context.Context, p params) (result, error) {
	name, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	id, err := p.text("key_id")
	if err != nil {
		return result{}, err
	}
	return okResult, c.o.Broker.RevokeKey(ctx, name, id)
}
