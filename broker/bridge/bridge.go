package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
)

// Connector is one connector and what it is connected to.
type Connector struct {
	// Name is its name as a peer.
	Name   string
	Dialer connector.Dialer
	// Identities are the relay's accounts with it. The first speaks where
	// nothing names another.
	Identities []connector.Identity
	// Routes say who gets the events of a chat. The first that fits counts.
	Routes []Route
	// DeliverTo is who gets all others. If it is empty, they are set aside.
	DeliverTo string
	// Delivery verifies events that are posted. Nil: none may be.
	Delivery *connector.DeliveryVerifier
}

// Route has the events of a chat delivered to an agent. An empty platform is
// any, and so is an empty chat.
type Route struct {
	Platform, ChatID string
	DeliverTo        string
}

// Names are the names of connectors, for broker.Options.Reserved.
func Names(connectors []Connector) map[string]bool {
	names := map[string]bool{}
	for i := range connectors {
		names[connectors[i].Name] = true
	}
	return names
}

// Options are what a Bridge needs.
type Options struct {
	// Broker must have the connectors' Names as reserved ones.
	Broker     *broker.Broker
	Connectors []Connector
	// MaxBodyBytes bounds the body of a message. An event that is larger is set
	// aside.
	MaxBodyBytes int64
	// Limits and Reconnect are those of every connector.
	Limits    connector.Limits
	Reconnect connector.ReconnectPolicy
	// Now is the clock for deliveries. Default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Bridge connects all connectors. Its methods may be called at once from
// anywhere.
type Bridge struct {
	links []*link
	now   func() time.Time
}

// Open registers connectors and those whom they deliver to, and answers what may
// have been sent before a crash. It dials nobody yet.
func Open(ctx context.Context, o Options) (*Bridge, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	b := &Bridge{now: o.Now}
	for _, c := range o.Connectors {
		l, err := newLink(o, c)
		if err != nil {
			return nil, fmt.Errorf("connector %s: %w", c.Name, err)
		}
		if err := l.open(ctx); err != nil {
			return nil, fmt.Errorf("connector %s: %w", c.Name, err)
		}
		b.links = append(b.links, l)
	}
	return b, nil
}

// Run keeps the connectors connected until ctx ends, and then takes leave of
// them. A connector that fails is no reason to return.
func (b *Bridge) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, l := range b.links {
		running.Go(func() { l.run(ctx) })
	}
	running.Wait()
	return nil
}

// State is a connector at one moment.
type State struct {
	Name string
	connector.Status
	// Idle says that it was taken leave of, until Test.
	Idle bool
	// Delivery is whether events may be posted.
	Delivery bool
}

// States tells how all connectors stand, sorted by name.
func (b *Bridge) States() []State {
	list := make([]State, len(b.links))
	for i, l := range b.links {
		list[i] = l.state()
	}
	slices.SortFunc(list, func(a, b State) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// Test waits until a connector is online; one that was left or has refused is
// dialled again. It fails with what keeps the connector from being online.
func (b *Bridge) Test(ctx context.Context, name string) (State, error) {
	l, err := b.find(name)
	if err != nil {
		return State{}, err
	}
	return l.test(ctx)
}

// Idle takes leave of a connector, and waits until that is done. Messages to it
// wait, and it keeps what it has for the relay, until Test or a restart.
func (b *Bridge) Idle(ctx context.Context, name string) (State, error) {
	l, err := b.find(name)
	if err != nil {
		return State{}, err
	}
	return l.idle(ctx)
}

func (b *Bridge) find(name string) (*link, error) {
	for _, l := range b.links {
		if l.name == name {
			return l, nil
		}
	}
	return nil, &agentrelay.Error{Code: agentrelay.CodeNotFound, Message: fmt.Sprintf("there is no connector %.64q", name)}
}

// Channel names the platform of a message from or to a connector, "" of any
// other. Where the message lacks its body, that is the connector's first.
func Channel(connectors []Connector) func(*agentrelay.Message) string {
	identities := map[string][]connector.Identity{}
	for i := range connectors {
		identities[connectors[i].Name] = connectors[i].Identities
	}
	return func(m *agentrelay.Message) string {
		known, ok := identities[m.From]
		if !ok {
			known, ok = identities[m.To]
		}
		if !ok || len(known) == 0 {
			return ""
		}
		platform := platformOf(m.Body)
		for _, id := range known {
			if id.Platform == platform {
				return platform
			}
		}
		return known[0].Platform
	}
}

// passing reports whether an error of the broker may be gone at the next try.
// The others depend on the message.
func passing(err error) bool {
	for _, final := range []error{
		agentrelay.ErrBadRequest, agentrelay.ErrForbidden, agentrelay.ErrHookRejected, agentrelay.ErrBodyTooLarge,
	} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
