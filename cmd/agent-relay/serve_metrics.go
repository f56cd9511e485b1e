package main

import (
	"context"
	"net"
	"net/netip"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/broker/metrics"
	"github.com/agent-relay/agent-relay/store"
)

// showsMetrics reports whether GET /metrics is answered on an address. Whoever
// reaches the address may read them, so that is to be asked for where it may be
// somebody from another machine.
func (c *config) showsMetrics(addr net.Addr) bool {
	if c.Metrics != nil {
		return *c.Metrics
	}
	return isLoopback(addr) && !c.BehindProxy
}

func isLoopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// observers are who is told what happens. Without metrics, these are those who
// wait for messages, and the hooks.
type observers struct {
	hub     *broker.Hub
	broker  broker.Observer
	http    httpapi.Observer
	damage  *broker.Damage
	damages []func(store.Damage)
	// committed and metrics are nil without metrics.
	committed func(store.Commit)
	metrics   func(context.Context) ([]byte, error)
}

// newObservers makes them for p, whose broker need not be there yet.
func (p *process) newObservers(c *config, version string) *observers {
	o := &observers{hub: broker.NewHub(), damage: broker.NewDamage(p.log)}
	o.damages = append(o.damages, o.damage.Observe)
	if c.showsMetrics(p.listener.Addr()) {
		m := metrics.New(metrics.Options{
			Version: version, Log: p.log,
			Stats: func(ctx context.Context) (store.Stats, error) { return p.broker.Stats(ctx) },
			Hooks: func() metrics.HookStats {
				s := p.hooks.Stats()
				return metrics.HookStats{
					Events: s.Fired, Failed: s.Failed, Dropped: s.Dropped,
					Running: s.Running, Waiting: s.Waiting, Queued: s.Queued,
				}
			},
		})
		o.broker, o.http, o.committed, o.metrics = m, m, m.Committed, m.Text
		o.hub.Follow(m.Events)
		o.damages = append(o.damages, m.Damaged)
	}
	return o
}

// damaged tells all of them what the store found.
func (o *observers) damaged(d store.Damage) {
	for _, tell := range o.damages {
		tell(d)
	}
}
