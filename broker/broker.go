// Package broker is the relay's rules: who may send what to whom, and what
// becomes of a message. Transports translate to it and back; what it decides
// it keeps in a store.
package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// writeTimeout bounds a write to the store. Clients give up after 10 s; a
// write that takes longer than this is answered as busy, and the same request
// may be sent again.
const writeTimeout = 8 * time.Second

// Options are what a broker needs.
type Options struct {
	Store store.Store
	// Hub tells what happens, waiting polls above all. The store's Observe must
	// be Hub.Observe.
	Hub *Hub
	// Boundaries fires hooks. Default: there are none.
	Boundaries *Boundaries
	// Damage is what the store found damaged. The store's Damaged must call
	// Damage.Observe. Default: nothing is.
	Damage *Damage
	// Secret signs for every agent that was never given keys of its own.
	Secret string
	// RequireAgentKeys makes Secret good for nobody.
	RequireAgentKeys bool
	// Reserved are the names of peers that the broker itself provides: nobody
	// signs as one of them.
	Reserved map[string]bool
	// RequireSingleUse refuses requests whose timestamps have no fraction, since
	// those can be repeated.
	RequireSingleUse bool
	// AllowedTargets is the routing ACL: an agent that has an entry may send
	// to the named agents alone; one that has none may send to all.
	AllowedTargets map[string][]string
	// Heartbeat is how long after its last request an agent counts as online.
	Heartbeat time.Duration
	// TTL is the store's time to live of messages.
	TTL time.Duration
	// Lockout is when failed authentication locks.
	Lockout Lockout
	Clock   store.Clock
	NewID   func() string
	// Random makes secrets. Default: that of crypto/rand.
	Random io.Reader
	Log    *slog.Logger
	// Observer is told what happens. Default: nobody is.
	Observer Observer
}

// Broker applies the rules. Its methods may be called at once from anywhere.
type Broker struct {
	options    Options
	store      store.Store
	log        *slog.Logger
	audit      *slog.Logger
	registry   *registry
	lockout    *lockout
	singleUse  *singleUse
	sweeper    *sweeper
	deliveries *deliveries
	boundaries *Boundaries
	waits      waits
	health     health
	statistics statistics
	observer   Observer
	hub        *Hub
	rules      atomic.Pointer[ReloadOptions]
	// administering is held while an agent is changed, in the store and then in
	// the registry, and shared while one registers.
	administering sync.RWMutex

	draining chan struct{}
	drain    sync.Once
}

// Open reads the registry from the store and returns a broker. The caller
// runs it, and closes the store when it has returned.
func Open(ctx context.Context, o Options) (*Broker, error) {
	if o.Clock == nil {
		o.Clock = store.SystemClock{}
	}
	if o.NewID == nil {
		o.NewID = store.NewID
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Boundaries == nil {
		o.Boundaries = NewBoundaries(nil, false)
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	agents, err := o.Store.Agents(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the registry: %w", err)
	}
	b := &Broker{
		options:    o,
		store:      o.Store,
		log:        o.Log,
		audit:      Audit(o.Log),
		registry:   newRegistry(agents, o.Clock, o.Heartbeat),
		lockout:    newLockout(o.Lockout, o.Clock),
		singleUse:  newSingleUse(o.Clock),
		sweeper:    newSweeper(),
		deliveries: newDeliveries(),
		boundaries: o.Boundaries,
		observer:   o.Observer,
		hub:        o.Hub,
		draining:   make(chan struct{}),
	}
	rules := o.reloadable()
	b.rules.Store(&rules)
	b.registry.tell = b.hub.tell
	b.hub.Follow(b.boundaries.observe)
	b.lockout.ended = func(s suspect) {
		b.audit.Info("agent unlocked", "agent", s.agent, "address", s.address, "by", "time")
	}
	return b, nil
}

// Audit is the logger of what concerns security: its attributes are a group of
// that name. Neither secrets nor bodies go there.
func Audit(log *slog.Logger) *slog.Logger { return log.WithGroup("audit") }

// Run does what time makes due, and what no request waits for. It returns
// when ctx ends and everything of that is written, or when the store fails.
func (b *Broker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wait sync.WaitGroup
	for _, part := range []func(context.Context){b.sweep, b.recordDeliveries, b.recordPresence, b.watchPresence} {
		wait.Go(func() { part(ctx) })
	}
	defer wait.Wait()
	select {
	case <-ctx.Done():
		return nil
	case <-b.store.Failed():
		cancel()
		return fmt.Errorf("the store failed; what was accepted is kept, restart the broker: %w", b.store.Err())
	}
}

// Drain makes polls that wait, now and later, answer what is there at once.
func (b *Broker) Drain() {
	b.drain.Do(func() { close(b.draining) })
}

// detach gives an admitted request's write a deadline of its own, so that a
// client that goes away does not leave it half done.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

// background logs the failure of something that no request waits for.
func (b *Broker) background(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		b.log.Error(what+" failed", "error", err)
	}
}
