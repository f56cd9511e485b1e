package broker

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Bounds of what an operator sets for an agent.
const (
	maxDescription    = 1024
	maxAllowedTargets = 1000
)

// AgentInfos tells of all agents that are registered, or named in the config,
// sorted by name.
func (b *Broker) AgentInfos(ctx context.Context) ([]AgentInfo, error) {
	backlog, err := b.store.Backlog(ctx, "")
	if err != nil {
		return nil, err
	}
	names := b.registry.names()
	for name := range b.rules.Load().AllowedTargets {
		names = append(names, name)
	}
	slices.Sort(names)
	locked := b.lockout.locked()
	infos := []AgentInfo{}
	for _, name := range slices.Compact(names) {
		infos = append(infos, b.describe(name, backlog[name], locked[name]))
	}
	return infos, nil
}

// AgentInfo tells of one. CodeNoSuchAgent if it is neither registered nor named
// in the config.
func (b *Broker) AgentInfo(ctx context.Context, name string) (AgentInfo, error) {
	if _, named := b.rules.Load().AllowedTargets[name]; !named && !b.registry.knows(name) {
		return AgentInfo{}, b.noSuchAgent(name)
	}
	backlog, err := b.store.Backlog(ctx, name)
	if err != nil {
		return AgentInfo{}, err
	}
	return b.describe(name, backlog[name], b.lockout.locked()[name]), nil
}

func (b *Broker) describe(name string, waiting store.Backlog, locked time.Duration) AgentInfo {
	info := b.registry.info(name)
	info.AllowedTargets = slices.Clone(b.targets(name))
	info.Queued, info.Leased = waiting.Queued, waiting.Leased
	if locked > 0 {
		info.LockedUntil = b.options.Clock.Now().Add(locked)
	}
	return info
}

// AddAgent registers an agent, unless it is, sets what p says and gives it its
// first key: from then on nothing but its own keys is good for it, until it is
// removed. CodeBadRequest if it was given keys before.
func (b *Broker) AddAgent(ctx context.Context, name string, p AgentPatch) (Key, error) {
	if err := b.checkPatch(name, p); err != nil {
		return Key{}, err
	}
	return b.giveKey(ctx, name, time.Time{}, func(ctx context.Context, k store.Key) (store.Agent, error) {
		return b.store.AddAgent(ctx, name, p, k)
	})
}

// UpdateAgent sets what p says. CodeNoSuchAgent; CodeForbidden for what the
// config says of this agent, which wins.
func (b *Broker) UpdateAgent(ctx context.Context, name string, p AgentPatch) (AgentInfo, error) {
	if err := b.checkPatch(name, p); err != nil {
		return AgentInfo{}, err
	}
	err := b.administer(ctx, name, func(ctx context.Context) (store.Agent, error) {
		return b.store.UpdateAgent(ctx, name, p)
	})
	if err != nil {
		return AgentInfo{}, err
	}
	b.audit.Info("agent updated", "agent", name)
	return b.AgentInfo(ctx, name)
}

// RemoveAgent forgets an agent, its keys and what was set for it. Its name is
// then like one that never registered: whoever knows the shared secret may use
// it, and gets what is still in the inbox. CodeNoSuchAgent.
func (b *Broker) RemoveAgent(ctx context.Context, name string) error {
	if b.options.Reserved[name] {
		return &agentrelay.Error{
			Code: agentrelay.CodeForbidden, Message: fmt.Sprintf("%q is the broker's own; it goes when it is taken out of the config", name),
		}
	}
	b.administering.Lock()
	defer b.administering.Unlock()
	ctx, cancel := detach(ctx)
	defer cancel()
	if err := b.store.RemoveAgent(ctx, name); err != nil {
		return b.suggest(name, err)
	}
	b.singleUse.drop(b.registry.remove(name))
	b.audit.Info("agent removed", "agent", name)
	return nil
}

// UnlockAgent ends an agent's locks at all addresses, and forgets its bad
// signatures. CodeNoSuchAgent if it is not registered and there are none.
func (b *Broker) UnlockAgent(_ context.Context, name string) error {
	if !b.lockout.unlock(name) && !b.registry.knows(name) {
		return b.noSuchAgent(name)
	}
	b.audit.Info("agent unlocked", "agent", name, "by", "operator")
	return nil
}

// administer changes an agent in the store, and then in the registry.
func (b *Broker) administer(ctx context.Context, name string, change func(context.Context) (store.Agent, error)) error {
	b.administering.Lock()
	defer b.administering.Unlock()
	ctx, cancel := detach(ctx)
	defer cancel()
	agent, err := change(ctx)
	if err != nil {
		return b.suggest(name, err)
	}
	b.singleUse.drop(b.registry.set(agent))
	return nil
}

func (b *Broker) noSuchAgent(name string) error {
	return b.suggest(name, &agentrelay.Error{
		Code: agentrelay.CodeNoSuchAgent, Message: fmt.Sprintf("no agent %q ever registered", name),
	})
}

func (b *Broker) checkPatch(name string, p AgentPatch) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, named := b.rules.Load().AllowedTargets[name]; named && p.AllowedTargets.Set {
		return &agentrelay.Error{
			Code:    agentrelay.CodeForbidden,
			Message: fmt.Sprintf("the broker's config says what the allowed targets of %q are; change them there", name),
		}
	}
	if text := p.Description.Value; text != nil && (len(*text) > maxDescription || !utf8.ValidString(*text)) {
		return badRequest(fmt.Sprintf("a description is text of at most %d bytes", maxDescription))
	}
	if targets := p.AllowedTargets.Value; targets != nil {
		if len(*targets) > maxAllowedTargets {
			return badRequest(fmt.Sprintf("there may be at most %d allowed targets; without any list, all are allowed", maxAllowedTargets))
		}
		for _, target := range *targets {
			if err := checkName(target); err != nil {
				return err
			}
		}
	}
	if most := p.MaxQueued.Value; most != nil && *most < 1 {
		return badRequest("max_queued must be at least 1; remove it to have the broker's")
	}
	return nil
}

func checkName(name string) error {
	if !agentrelay.ValidName(name) {
		return badRequest("an agent's name must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	return nil
}

func badRequest(message string) error {
	return &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: message}
}

// Requeue queues a message again, whatever became of it, as long as it has its
// body: with no attempts, a new position and a new time to live. Its next
// outcome gets another receipt. CodeNoSuchMessage, CodeBadRequest.
func (b *Broker) Requeue(ctx context.Context, id string) error {
	return b.overrule(ctx, "message requeued", id, b.store.Requeue)
}

// Cancel makes a message that is queued or leased failed, with the error
// store.Cancelled; its sender gets the receipt. CodeNoSuchMessage,
// CodeBadRequest if the message ended otherwise.
func (b *Broker) Cancel(ctx context.Context, id string) error {
	return b.overrule(ctx, "message cancelled", id, b.store.Cancel)
}

func (b *Broker) overrule(ctx context.Context, what, id string, do func(context.Context, string) error) error {
	ctx, cancel := detach(ctx)
	defer cancel()
	if err := do(ctx, id); err != nil {
		return err
	}
	b.sweeper.within(b.options.TTL)
	b.log.Info(what, "id", id)
	return nil
}
