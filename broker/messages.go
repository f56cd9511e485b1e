package broker

import (
	"context"
	"errors"
	"slices"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Sent says what became of a message.
type Sent struct {
	ID        string
	Duplicate bool
	Recipient agentrelay.Peer
}

// Send accepts a message. When it returns without an error, the message is
// durable. It makes an id where there is none.
func (b *Broker) Send(ctx context.Context, m agentrelay.Message) (Sent, error) {
	if targets := b.targets(m.From); targets != nil && !slices.Contains(targets, m.To) {
		return Sent{}, &agentrelay.Error{
			Code:    agentrelay.CodeForbidden,
			Message: `the routing rules do not let "` + m.From + `" send to "` + m.To + `"; its allowed targets are in the broker's config, or set by its operator`,
		}
	}
	if m.ID == "" {
		m.ID = b.options.NewID()
	}
	accept := b.enqueue
	if b.boundaries.asks() {
		accept = b.decide
	}
	result, err := accept(ctx, m)
	switch {
	case errors.Is(err, agentrelay.ErrIDConflict):
		b.observer.Conflict()
		return Sent{}, err
	case err != nil:
		b.auditRefusal(&m, err)
		return Sent{}, b.suggest(m.To, err)
	case result.Duplicate:
		b.observer.Duplicate()
	default:
		b.sweeper.within(b.options.TTL)
		b.boundaries.entered(&m, result.TS)
		b.log.Debug("message accepted", "id", m.ID, "from", m.From, "to", m.To)
	}
	return Sent{ID: m.ID, Duplicate: result.Duplicate, Recipient: b.registry.peer(m.To)}, nil
}

// targets are the only ones to which an agent may send; nil are all.
func (b *Broker) targets(agent string) []string {
	if targets, named := b.rules.Load().AllowedTargets[agent]; named {
		if targets == nil {
			return []string{}
		}
		return targets
	}
	return b.registry.targets(agent)
}

// auditRefusal notes what was refused because of a quota or by a hook.
func (b *Broker) auditRefusal(m *agentrelay.Message, err error) {
	switch {
	case errors.Is(err, agentrelay.ErrQueueFull):
		b.audit.Warn("quota reached", "from", m.From, "to", m.To)
	case errors.Is(err, agentrelay.ErrHookRejected):
		b.audit.Warn("message refused by a hook", "id", m.ID, "from", m.From, "to", m.To)
	}
}

func (b *Broker) enqueue(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	return b.store.Enqueue(ctx, m)
}

// decide stores a message if the hooks let it. Whoever sends it again meanwhile
// waits for what comes of it; whoever sends another one under its id, for its
// own turn. No hook is asked about a message that is known, or cannot be stored.
func (b *Broker) decide(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	for {
		if known, err := b.store.Known(ctx, m); err != nil || known.Duplicate {
			return known, err
		}
		mine, other := b.boundaries.begin(&m)
		if mine != nil {
			result, err := b.decideNow(ctx, m)
			b.boundaries.end(m.ID, mine, err)
			return result, err
		}
		select {
		case <-other.over:
		case <-ctx.Done():
			return store.Enqueued{}, ctx.Err()
		}
		if other.err != nil && other.from == m.From && other.fingerprint == m.Fingerprint() {
			return store.Enqueued{}, other.err
		}
	}
}

func (b *Broker) decideNow(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	bounded, cancel := detach(ctx)
	defer cancel()
	if err := b.boundaries.ask(bounded, &m, b.options.Clock.Now()); err != nil {
		return store.Enqueued{}, err
	}
	return b.enqueue(ctx, m)
}

// suggest adds near names to the error about an unknown recipient.
func (b *Broker) suggest(name string, err error) error {
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Code != agentrelay.CodeNoSuchAgent {
		return err
	}
	better := *e
	better.Suggestions = b.registry.near(name)
	better.Message += "; GET /peers lists those that did"
	if len(better.Suggestions) > 0 {
		better.Message = e.Message + `; did you mean "` + better.Suggestions[0] + `"?`
	}
	return &better
}

// Acknowledge ends a message of agent's inbox and sends its receipt.
func (b *Broker) Acknowledge(ctx context.Context, a store.Acknowledgement) (receiptID string, err error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	receiptID, err = b.store.Acknowledge(ctx, a)
	if err == nil {
		b.sweeper.within(b.options.TTL)
		b.log.Debug("message acknowledged", "id", a.ID, "by", a.Agent, "failed", a.Failed)
	}
	return receiptID, err
}

// Messages returns those of ids that agent sent or received.
func (b *Broker) Messages(ctx context.Context, agent string, ids []string) (map[string]agentrelay.Message, error) {
	return b.store.Messages(ctx, agent, ids)
}

// Query returns messages of an inbox, newest first.
func (b *Broker) Query(ctx context.Context, f store.Filter) ([]agentrelay.Message, error) {
	return b.store.Query(ctx, f)
}
