package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Poll returns messages of an inbox after a cursor. Where there are none it
// waits for some, until the time is up, ctx ends or the broker drains.
func (b *Broker) Poll(ctx context.Context, q store.PollQuery, wait time.Duration) (store.Page, error) {
	page, err := await(ctx, b, q.Agent, wait, func() (store.Page, bool, error) {
		bounded, cancel := detach(ctx)
		defer cancel()
		page, err := b.store.Poll(bounded, q)
		return page, len(page.Messages) > 0, err
	})
	if err == nil && ctx.Err() == nil {
		b.deliveries.add(page.Messages, b.options.Clock.Now())
	}
	return page, err
}

// Pull leases messages of an inbox, waiting as Poll does.
func (b *Broker) Pull(ctx context.Context, q store.LeaseRequest, wait time.Duration) ([]store.Leased, error) {
	leased, err := await(ctx, b, q.Agent, wait, func() ([]store.Leased, bool, error) {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		bounded, cancel := detach(ctx)
		defer cancel()
		leased, err := b.store.Lease(bounded, q)
		return leased, len(leased) > 0, err
	})
	if len(leased) > 0 {
		b.sweeper.within(q.For)
	}
	return leased, err
}

// Return gives leases back whose messages could not be handed over.
func (b *Broker) Return(ctx context.Context, agent string, leased []store.Leased) {
	if len(leased) > 0 {
		b.background("give leases back", b.Release(ctx, agent, leased))
	}
}

// Release is Return for who minds that it fails.
func (b *Broker) Release(ctx context.Context, agent string, leased []store.Leased) error {
	ctx, cancel := detach(ctx)
	defer cancel()
	return b.store.Release(ctx, agent, leased)
}

// HandedOver tells that messages under leases reached the agent.
func (b *Broker) HandedOver(leased []store.Leased) {
	for i := range leased {
		if leased[i].First {
			b.boundaries.left(&leased[i].Message, leased[i].DeliveredAt)
		}
	}
}

// Settle ends a lease.
func (b *Broker) Settle(ctx context.Context, s store.Settlement) (store.Settled, error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	settled, err := b.store.Settle(ctx, s)
	if err == nil {
		b.sweeper.within(b.options.TTL)
		b.log.Debug("lease settled", "id", s.ID, "by", s.Agent, "outcome", s.Outcome, "status", settled.Status)
	}
	return settled, err
}

// Renew prolongs a lease.
func (b *Broker) Renew(ctx context.Context, r store.Renewal) (until time.Time, err error) {
	ctx, cancel := detach(ctx)
	defer cancel()
	until, err = b.store.Renew(ctx, r)
	if err == nil {
		b.sweeper.within(r.For)
	}
	return until, err
}

// maxWaiting is how many polls and pulls of one agent may wait at a time.
const maxWaiting = 64

// waits counts those that wait, by agent.
type waits struct {
	mu      sync.Mutex
	byAgent map[string]int
}

// begin refuses one too many; else end is to be called.
func (w *waits) begin(agent string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byAgent[agent] >= maxWaiting {
		return &agentrelay.Error{
			Code: agentrelay.CodeRateLimited, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d polls of this agent wait already; end some, or poll without wait", maxWaiting),
		}
	}
	if w.byAgent == nil {
		w.byAgent = map[string]int{}
	}
	w.byAgent[agent]++
	return nil
}

func (w *waits) end(agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byAgent[agent]--; w.byAgent[agent] == 0 {
		delete(w.byAgent, agent)
	}
}

// await calls try until it finds something or there is no more time.
func await[T any](ctx context.Context, b *Broker, agent string, wait time.Duration, try func() (T, bool, error)) (T, error) {
	if wait <= 0 {
		found, _, err := try()
		return found, err
	}
	timer := time.NewTimer(min(wait, agentrelay.MaxWaitSeconds*time.Second))
	defer timer.Stop()
	for {
		// Listening begins before looking, so that nothing comes between.
		arrived, stop := b.hub.arrivals.wait(agent)
		found, some, err := try()
		if some || err != nil {
			stop()
			return found, err
		}
		if err := b.waits.begin(agent); err != nil {
			stop()
			return found, err
		}
		more := false
		b.observer.Waiting(1)
		select {
		case <-arrived:
			more = true
		case <-timer.C:
		case <-b.draining:
		case <-ctx.Done():
			err = ctx.Err()
		}
		b.observer.Waiting(-1)
		b.waits.end(agent)
		stop()
		if !more {
			return found, err
		}
	}
}
