package bridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/store"
)

// link is one connector as a peer.
type link struct {
	Connector
	name      string
	broker    *broker.Broker
	transport *connector.Transport
	limits    connector.Limits
	maxBody   int64
	log       *slog.Logger

	mu sync.Mutex
	// ready ends when the connector is no longer online; nil while it is not.
	ready  context.Context
	unset  context.CancelFunc
	phase  connector.Phase
	err    error
	stop   context.CancelFunc // ends the transport's run; nil while it does not run
	left   bool               // by Idle
	change chan struct{}      // closed and replaced with each change of these
	wake   chan struct{}      // asks for another run
}

func newLink(o Options, c Connector) (*link, error) {
	l := &link{
		Connector: c, name: c.Name, broker: o.Broker, limits: o.Limits, maxBody: o.MaxBodyBytes,
		log: o.Log.With("connector", c.Name), phase: connector.Stopped,
		change: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	var err error
	l.transport, err = connector.New(connector.Options{
		Dialer: c.Dialer, Identities: c.Identities, Limits: o.Limits, Reconnect: o.Reconnect, Log: l.log, OnPhase: l.enter,
		Handlers: connector.Handlers{Inbound: l.inbound, Passthrough: l.passthrough, Interrupt: l.interrupted},
	})
	return l, err
}

// open makes the peer known, and answers what may have been sent.
func (l *link) open(ctx context.Context) error {
	names := []string{l.name, l.DeliverTo}
	for _, r := range l.Routes {
		names = append(names, r.DeliverTo)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}
		if err := l.broker.Introduce(ctx, name); err != nil {
			return err
		}
	}
	l.broker.Hold(l.name, false)
	return l.recover(ctx)
}

// recover answers what was leased when the process ended: at most the message
// that was being carried out.
func (l *link) recover(ctx context.Context) error {
	list, err := l.broker.Query(ctx, store.Filter{
		Agent: l.name, Status: agentrelay.StatusLeased, Limit: agentrelay.MaxLimit, MaxBytes: agentrelay.MaxPageBytes,
	})
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Type == agentrelay.TypeAck {
			continue // its lease runs out
		}
		l.log.Warn("a message may have been sent before the broker ended; it is not sent again", "id", list[i].ID)
		if _, err := l.broker.Acknowledge(ctx, interruptedOutcome.of(l.name, list[i].ID)); err != nil {
			return err
		}
	}
	return nil
}

// enter is told of the transport's phases.
func (l *link) enter(p connector.Phase, err error) {
	l.changed(func() {
		l.phase = p
		if err != nil || p == connector.Online {
			l.err = err
		}
		switch {
		case p == connector.Online:
			l.ready, l.unset = context.WithCancel(context.Background())
		case l.ready != nil && p != connector.Draining:
			l.unset()
			l.ready = nil
		}
	})
	if p != connector.Draining {
		l.broker.Hold(l.name, p == connector.Online)
	}
}

// changed applies a change and tells whoever waits for one.
func (l *link) changed(apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	apply()
	close(l.change)
	l.change = make(chan struct{})
}

// await waits until holds, which is called under the lock, is true.
func (l *link) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		done, change := holds(), l.change
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// online waits until the connector is online, and returns a context that ends
// when it no longer is, or ctx does.
func (l *link) online(ctx context.Context) (context.Context, context.CancelFunc, error) {
	var ready context.Context
	if err := l.await(ctx, func() bool { ready = l.ready; return ready != nil }); err != nil {
		return nil, nil, err
	}
	both, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(ready, cancel)
	return both, func() { unhook(); cancel() }, nil
}

// run serves until ctx ends. After a leave, or a refusal for good, it waits to be
// woken.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.serve(ctx); errors.Is(err, connector.ErrRefused) {
			l.log.Error("messages to this connector wait until it is tested, or the broker restarted", "error", err)
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
		}
	}
}

// serve runs the transport once, and what goes out over it.
func (l *link) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.changed(func() { l.stop, l.left = stop, false })
	var sending sync.WaitGroup
	sending.Go(func() { l.sendAll(ctx) })
	err := l.transport.Run(ctx)
	stop()
	sending.Wait()
	l.changed(func() { l.stop = nil })
	return err
}

func (l *link) state() State {
	l.mu.Lock()
	left := l.left
	l.mu.Unlock()
	return State{Name: l.name, Status: l.transport.Status(), Idle: left, Delivery: l.Delivery != nil}
}

func (l *link) test(ctx context.Context) (State, error) {
	select {
	case l.wake <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, l.handshake())
	defer cancel()
	err := l.await(ctx, func() bool { return l.ready != nil })
	state := l.state()
	if err != nil && state.Err != nil {
		err = state.Err
	}
	l.sleep()
	return state, err
}

// handshake is how long the connector may take to say what it can.
func (l *link) handshake() time.Duration { return cmp.Or(l.limits.Handshake, 30*time.Second) }

// sleep takes back a wish to be woken that nobody heard, as the link is awake.
func (l *link) sleep() {
	select {
	case <-l.wake:
	default:
	}
}

func (l *link) idle(ctx context.Context) (State, error) {
	l.changed(func() {
		l.left = true
		if l.stop != nil {
			l.stop()
		}
	})
	err := l.await(ctx, func() bool { return l.stop == nil })
	return l.state(), err
}
