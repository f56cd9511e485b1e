package socket

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/store"
)

// ControlVersion is the version of the control socket's protocol.
const ControlVersion = 1

// Broker is what the control socket drives. Its errors are answered as
// agentrelay.Wrap makes them.
type Broker interface {
	AgentInfos(ctx context.Context) ([]broker.AgentInfo, error)
	AgentInfo(ctx context.Context, name string) (broker.AgentInfo, error)
	AddAgent(ctx context.Context, name string, p broker.AgentPatch) (broker.Key, error)
	UpdateAgent(ctx context.Context, name string, p broker.AgentPatch) (broker.AgentInfo, error)
	RemoveAgent(ctx context.Context, name string) error
	UnlockAgent(ctx context.Context, name string) error
	AddKey(ctx context.Context, name string, notAfter time.Time) (broker.Key, error)
	RotateKey(ctx context.Context, name string, overlap time.Duration) (broker.Key, error)
	RevokeKey(ctx context.Context, name, keyID string) error

	Send(ctx context.Context, m agentrelay.Message) (broker.Sent, error)
	Messages(ctx context.Context, agent string, ids []string) (map[string]agentrelay.Message, error)
	Query(ctx context.Context, f store.Filter) ([]agentrelay.Message, error)
	Requeue(ctx context.Context, id string) error
	Cancel(ctx context.Context, id string) error

	Peers() []agentrelay.Peer
	Stats(ctx context.Context) (store.Stats, error)
}

// ControlOptions are what a control socket needs.
type ControlOptions struct {
	Broker Broker
	Hooks  Hooks
	// Connectors may be nil if there are none.
	Connectors Connectors
	// Reload reads the config again and applies what may change while the
	// broker runs. It returns the keys of what else has changed.
	Reload func(context.Context) (unchanged []string, err error)
	// Version is the program's.
	Version string
	// Log is told what goes wrong; nil is nobody.
	Log *slog.Logger
}

// Control serves the control socket (PROTOCOL.md, "The control socket"): its
// Serve is that of Options. It knows who subscribed, and passes on what it is
// told with Publish.
type Control struct {
	o       ControlOptions
	log     *slog.Logger
	started time.Time
	methods map[string]method

	mu   sync.RWMutex
	outs map[*outbox]bool
	// subscribers is how many of outs want events.
	subscribers atomic.Int64
	unreadable  atomic.Uint64
	lost        atomic.Uint64
}

// NewControl returns one to which nobody is connected.
func NewControl(o ControlOptions) *Control {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Control{o: o, log: o.Log.With("socket", "control"), started: time.Now(), outs: map[*outbox]bool{}}
	c.methods = map[string]method{
		"stats": c.stats,

		"list_agents":  c.listAgents,
		"get_agent":    c.getAgent,
		"add_agent":    c.addAgent,
		"update_agent": c.updateAgent,
		"remove_agent": c.removeAgent,
		"unlock_agent": c.unlockAgent,
		"add_key":      c.addKey,
		"rotate_key":   c.rotateKey,
		"revoke_key":   c.revokeKey,

		"recent":  c.recent,
		"query":   c.query,
		"status":  c.status,
		"requeue": c.requeue,
		"cancel":  c.cancel,

		"list_connectors": c.listConnectors,
		"test_connector":  c.testConnector,
		"idle_connector":  c.idleConnector,

		"reload": c.reload,
	}
	return c
}

// ControlStats are what became of clients since the start.
type ControlStats struct {
	// Clients are connected, Subscribers of them want events.
	Clients, Subscribers int
	// Unreadable lines were skipped, Lost events dropped since a client did
	// not read them in time.
	Unreadable, Lost uint64
}

// Stats tells what became of clients.
func (c *Control) Stats() ControlStats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return ControlStats{
		Clients: len(c.outs), Subscribers: int(c.subscribers.Load()),
		Unreadable: c.unreadable.Load(), Lost: c.lost.Load(),
	}
}

// Publish passes an event on to those who subscribed. It does not block.
func (c *Control) Publish(e broker.Event) {
	c.publish(event{Event: e})
}

// HookFailed tells subscribers that a script failed, or was not run.
func (c *Control) HookFailed(hook, script string) {
	c.publish(event{Event: broker.Event{Kind: eventHookFailed}, hook: hook, script: script})
}

// ConfigReloaded tells subscribers that another config is in force.
func (c *Control) ConfigReloaded() {
	c.publish(event{Event: broker.Event{Kind: eventConfigReloaded}})
}

func (c *Control) publish(e event) {
	if c.subscribers.Load() == 0 {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for o := range c.outs {
		o.publish(e)
	}
}

// join makes the outbox of a new connection.
func (c *Control) join() *outbox {
	o := newOutbox(&c.subscribers, func(missed uint64) {
		c.lost.Add(missed)
		c.log.Warn(fellBehind(missed))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outs[o] = true
	return o
}

func (c *Control) leave(o *outbox) {
	c.mu.Lock()
	delete(c.outs, o)
	c.mu.Unlock()
	o.close()
}
