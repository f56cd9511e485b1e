package broker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
	"github.com/agent-relay/agent-relay/store/storetest"
)

var ctx = context.Background()

// faulty is a store some of whose calls can be counted and made to fail. Its
// own calls follow the test's bubble of time, if there is one.
type faulty struct {
	store.Store

	mu       sync.Mutex
	calls    map[string]int
	failures map[string]error
	failed   chan struct{}
	sweeps   []time.Time
	next     time.Duration
	recorded map[string]time.Time
	takes    time.Duration // of Stats, in the bubble's time
}

func (f *faulty) enter(call string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	return f.failures[call]
}

func (f *faulty) fail(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures[call] = err
}

func (f *faulty) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faulty) Agents(ctx context.Context) ([]store.Agent, error) {
	if err := f.enter("Agents"); err != nil {
		return nil, err
	}
	return f.Store.Agents(ctx)
}

func (f *faulty) Register(ctx context.Context, agent string) error {
	if err := f.enter("Register"); err != nil {
		return err
	}
	return f.Store.Register(ctx, agent)
}

func (f *faulty) Probe(ctx context.Context) error {
	if err := f.enter("Probe"); err != nil {
		return err
	}
	return f.Store.Probe(ctx)
}

func (f *faulty) Known(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	if err := f.enter("Known"); err != nil {
		return store.Enqueued{}, err
	}
	return f.Store.Known(ctx, m)
}

func (f *faulty) Delivered(ctx context.Context, ids []string, at time.Time) error {
	if err := f.enter("Delivered"); err != nil {
		return err
	}
	f.mu.Lock()
	for _, id := range ids {
		f.recorded[id] = at
	}
	f.mu.Unlock()
	return f.Store.Delivered(ctx, ids, at)
}

func (f *faulty) Sweep(ctx context.Context) (time.Duration, error) {
	err := f.enter("Sweep")
	f.mu.Lock()
	f.sweeps = append(f.sweeps, time.Now())
	next := f.next
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if next > 0 {
		_, err := f.Store.Sweep(ctx)
		return next, err
	}
	return f.Store.Sweep(ctx)
}

func (f *faulty) Stats(ctx context.Context) (store.Stats, error) {
	time.Sleep(f.takes)
	if err := f.enter("Stats"); err != nil {
		return store.Stats{}, err
	}
	return f.Store.Stats(ctx)
}

func (f *faulty) Failed() <-chan struct{} { return f.failed }

func (f *faulty) Err() error { return f.enter("Err") }

// fixture is a broker over a store of its own. It runs when the test says so.
type fixture struct {
	*Broker
	t     testing.TB
	store *faulty
	clock *storetest.Clock
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newHookedFixture(t, nil)
}

func newHookedFixture(t testing.TB, boundaries *Boundaries) *fixture {
	t.Helper()
	clock, hub := storetest.NewClock(start), NewHub()
	opened, err := sqlite.Open(ctx, sqlite.Options{Dir: t.TempDir(), Options: store.Options{Clock: clock, Observe: hub.Observe}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &faulty{
		Store: opened, calls: map[string]int{}, failures: map[string]error{},
		failed: make(chan struct{}), recorded: map[string]time.Time{},
	}
	b, err := Open(ctx, Options{
		Store: f, Hub: hub, Boundaries: boundaries, Secret: "the secret of these tests", Heartbeat: time.Minute, TTL: time.Hour,
		Lockout: Lockout{Failures: 5, Duration: time.Minute}, Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Broker: b, t: t, store: f, clock: clock}
}

// run runs the broker until stop is called, or the test ends.
func (f *fixture) run() (stop func() error) {
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	f.t.Cleanup(func() { _ = stop() })
	return stop
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// send sends messages from ann to ben, who is registered.
func (f *fixture) send(ids ...string) {
	f.t.Helper()
	_, err := f.Register(ctx, "ben")
	f.must(err)
	for _, id := range ids {
		_, err := f.Send(ctx, message(id))
		f.must(err)
	}
}

func message(id string) agentrelay.Message {
	return agentrelay.Message{
		ID: id, From: "ann", To: "ben", Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Body: []byte(`{}`),
	}
}

// inbox polls all of ben's inbox.
func (f *fixture) inbox() store.PollQuery {
	return store.PollQuery{Agent: "ben", Limit: 1000, MaxBytes: 1 << 20}
}

// Administration can be made to fail.

func (f *faulty) AddAgent(ctx context.Context, name string, p store.AgentPatch, k store.Key) (store.Agent, error) {
	if err := f.enter("AddAgent"); err != nil {
		return store.Agent{}, err
	}
	return f.Store.AddAgent(ctx, name, p, k)
}

func (f *faulty) UpdateAgent(ctx context.Context, name string, p store.AgentPatch) (store.Agent, error) {
	if err := f.enter("UpdateAgent"); err != nil {
		return store.Agent{}, err
	}
	return f.Store.UpdateAgent(ctx, name, p)
}

func (f *faulty) RemoveAgent(ctx context.Context, name string) error {
	if err := f.enter("RemoveAgent"); err != nil {
		return err
	}
	return f.Store.RemoveAgent(ctx, name)
}

func (f *faulty) AddKey(ctx context.Context, name string, k store.Key) (store.Agent, error) {
	if err := f.enter("AddKey"); err != nil {
		return store.Agent{}, err
	}
	return f.Store.AddKey(ctx, name, k)
}

func (f *faulty) RotateKey(ctx context.Context, name string, k store.Key, end time.Time) (store.Agent, error) {
	if err := f.enter("RotateKey"); err != nil {
		return store.Agent{}, err
	}
	return f.Store.RotateKey(ctx, name, k, end)
}

func (f *faulty) RevokeKey(ctx context.Context, name, id string) (store.Agent, error) {
	if err := f.enter("RevokeKey"); err != nil {
		return store.Agent{}, err
	}
	return f.Store.RevokeKey(ctx, name, id)
}

func (f *faulty) Backlog(ctx context.Context, name string) (map[string]store.Backlog, error) {
	if err := f.enter("Backlog"); err != nil {
		return nil, err
	}
	return f.Store.Backlog(ctx, name)
}
