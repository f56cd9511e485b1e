package httpapi_test

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/broker/metrics"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
	"github.com/agent-relay/agent-relay/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret  = "the secret of these tests, which is long enough"
	version = "1.2.3-test"
	maxBody = 1 << 20
	// patience is how long a test waits for what must come.
	patience = 30 * time.Second
)

// start is what the wall shows when a test begins.
var start = time.Date(2026, 3, 14, 9, 26, 53, 589_000_000, time.UTC)

// setup is what a test wants to be otherwise.
type setup struct {
	dir                  string // default: one of the test's own
	clock                *storetest.Clock
	targets              map[string][]string
	publicHosts, proxies []string
	perAgent, perAddress int // default: as good as none
	requireSingleUse     bool
	requireAgentKeys     bool
	reserved             map[string]bool
	boundaries           *broker.Boundaries // default: no hooks
	log                  slog.Handler
	inner                store.Store // default: SQLite in dir
	writeBuffer          int         // of the server's connections
	uncounted            bool        // no metrics
	deliver              func(ctx context.Context, connector, timestamp, signature string, body []byte) (string, bool, error)
	maxQueued            int // in an inbox; default: the store's
}

// relay is a broker that listens on a port of its own, over its own store.
type relay struct {
	t      testing.TB
	setup  setup
	clock  *storetest.Clock
	store  *spy
	broker *broker.Broker
	api    *httpapi.API
	addr   string
	// metrics are nil if the relay is uncounted.
	metrics *metrics.Metrics

	server *http.Server
	cancel context.CancelFunc
	served chan error // the server's end
	ran    chan error // the broker's
	conns  sync.WaitGroup

	mu      sync.Mutex
	closed  map[string]chan struct{} // connections that are over, by client address
	idle    []*conn
	last    context.Context // of the latest request
	onServe func(*http.Request)
	stopped bool
}

// newRelay starts a relay that ends with the test.
func newRelay(t testing.TB, s setup) *relay {
	t.Helper()
	r := openRelay(t, s)
	r.serve(s)
	return r
}

// openRelay starts all of a relay but its server. It ends with the test.
func openRelay(t testing.TB, s setup) *relay {
	t.Helper()
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	if s.clock == nil {
		s.clock = storetest.NewClock(start)
	}
	if s.log == nil {
		s.log = slog.DiscardHandler
	}
	r := &relay{t: t, setup: s, clock: s.clock, served: make(chan error, 1), ran: make(chan error, 1), closed: map[string]chan struct{}{}}
	hub := broker.NewHub()
	told := broker.Observer(nil)
	if !s.uncounted {
		r.metrics = metrics.New(metrics.Options{
			Hooks:   func() metrics.HookStats { return metrics.HookStats{} },
			Version: version, Clock: s.clock, Log: slog.New(s.log),
			Stats: func(ctx context.Context) (store.Stats, error) { return r.broker.Stats(ctx) },
		})
		told = r.metrics
	}
	if s.inner == nil {
		s.inner = r.openStore(s, hub)
	}
	r.store = newSpy(s.inner)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	var err error
	r.broker, err = broker.Open(ctx, broker.Options{
		Store: r.store, Hub: hub, Secret: secret, RequireAgentKeys: s.requireAgentKeys, AllowedTargets: s.targets,
		Heartbeat: 90 * time.Second, TTL: 7 * 24 * time.Hour, RequireSingleUse: s.requireSingleUse, Reserved: s.reserved, Boundaries: s.boundaries,
		Lockout: broker.Lockout{Failures: 5, Duration: 5 * time.Minute},
		Clock:   s.clock, Log: slog.New(s.log), Observer: told,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.api = httpapi.New(r.httpOptions(s))
	go func() { r.ran <- r.broker.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

func (r *relay) openStore(s setup, hub *broker.Hub) store.Store {
	r.t.Helper()
	o := store.Options{Clock: s.clock, Observe: hub.Observe, MaxQueued: cmp.Or(s.maxQueued, 1<<30), MaxQueuedBytes: 1 << 40}
	if r.metrics != nil {
		o.Committed = r.metrics.Committed
		hub.Follow(r.metrics.Events)
	}
	opened, err := sqlite.Open(context.Background(), sqlite.Options{Dir: s.dir, Options: o})
	if err != nil {
		r.t.Fatal(err)
	}
	return opened
}

func (r *relay) httpOptions(s setup) httpapi.Options {
	o := httpapi.Options{
		Broker: r.broker, Version: version, Storage: "sqlite", PublicHosts: s.publicHosts,
		MaxBodyBytes: maxBody, Lease: 10 * time.Minute,
		PerAgent: 1 << 30, PerAddress: 1 << 30, Log: slog.New(s.log), Deliver: s.deliver,
	}
	if r.metrics != nil {
		o.Observer, o.Metrics = r.metrics, r.metrics.Text
	}
	if s.perAgent > 0 {
		o.PerAgent = s.perAgent
	}
	if s.perAddress > 0 {
		o.PerAddress = s.perAddress
	}
	for _, p := range s.proxies {
		o.TrustedProxies = append(o.TrustedProxies, netip.MustParsePrefix(p))
	}
	return o
}

func (r *relay) serve(s setup) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = listener.Addr().String()
	r.server = &http.Server{
		Handler:                      http.HandlerFunc(r.handle),
		ReadHeaderTimeout:            5 * time.Second,
		DisableGeneralOptionsHandler: true,
		ConnState:                    r.connState,
		ErrorLog:                     slog.NewLogLogger(s.log, slog.LevelDebug),
	}
	go func() { r.served <- r.server.Serve(listener) }()
}

func (r *relay) handle(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	hook := r.onServe
	r.last = q.Context()
	r.mu.Unlock()
	if hook != nil {
		hook(q)
	}
	r.api.ServeHTTP(w, q)
}

// watch has hook called with every request before it is served.
func (r *relay) watch(hook func(*http.Request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onServe = hook
}

func (r *relay) connState(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew:
		r.conns.Add(1)
		if r.setup.writeBuffer > 0 {
			_ = c.(*net.TCPConn).SetWriteBuffer(r.setup.writeBuffer)
		}
	case http.StateClosed:
		close(r.end(c.RemoteAddr()))
		r.conns.Done()
	}
}

// end returns the channel that is closed when the server is done with a
// client's connection. The caller holds the lock.
func (r *relay) end(client net.Addr) chan struct{} {
	if r.closed[client.String()] == nil {
		r.closed[client.String()] = make(chan struct{})
	}
	return r.closed[client.String()]
}

// waitClosed waits until the server is done with a connection and what was
// asked on it.
func (r *relay) waitClosed(c *conn) {
	r.t.Helper()
	r.mu.Lock()
	closed := r.end(c.LocalAddr())
	r.mu.Unlock()
	select {
	case <-closed:
	case <-time.After(patience):
		r.t.Fatal("the server still holds a connection that the client closed")
	}
}

// stop ends the relay: server, broker, store.
func (r *relay) stop() {
	r.t.Helper()
	if r.stopped {
		return
	}
	r.stopped = true
	r.broker.Drain()
	if r.server != nil {
		_ = r.server.Close()
		<-r.served
		r.conns.Wait()
	}
	r.cancel()
	if err := <-r.ran; err != nil {
		r.t.Errorf("the broker ended with: %v", err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Errorf("close the store: %v", err)
	}
	for _, c := range r.idle {
		_ = c.Close()
	}
}

// spy is a store whose calls can be counted, waited for and made to fail.
type spy struct {
	store.Store

	mu      sync.Mutex
	calls   map[string]int
	changed chan struct{} // closed at the next call
	touched []map[string]time.Time

	failEnqueue, failProbe, failStats, failUsed error
	afterLease                                  func()
}

func newSpy(s store.Store) *spy {
	return &spy{Store: s, calls: map[string]int{}, changed: make(chan struct{})}
}

// set changes the spy's fields.
func (s *spy) set(change func(*spy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *spy) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call]
}

// done notes that a call came to its end.
func (s *spy) done(call string) {
	s.set(func(s *spy) {
		s.calls[call]++
		close(s.changed)
		s.changed = make(chan struct{})
	})
}

// wait waits until a call came to its end n times since the start.
func (s *spy) wait(t testing.TB, call string, n int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		count, changed := s.calls[call], s.changed
		s.mu.Unlock()
		if count >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%s was called %d times only, want %d", call, count, n)
		}
	}
}

func (s *spy) Enqueue(ctx context.Context, m agentrelay.Message) (store.Enqueued, error) {
	defer s.done("Enqueue")
	s.mu.Lock()
	err := s.failEnqueue
	s.mu.Unlock()
	if err != nil {
		return store.Enqueued{}, err
	}
	return s.Store.Enqueue(ctx, m)
}

func (s *spy) Poll(ctx context.Context, q store.PollQuery) (store.Page, error) {
	defer s.done("Poll")
	return s.Store.Poll(ctx, q)
}

func (s *spy) Lease(ctx context.Context, q store.LeaseRequest) ([]store.Leased, error) {
	defer s.done("Lease")
	leased, err := s.Store.Lease(ctx, q)
	s.mu.Lock()
	after := s.afterLease
	s.mu.Unlock()
	if after != nil && len(leased) > 0 {
		after()
	}
	return leased, err
}

func (s *spy) Release(ctx context.Context, agent string, leased []store.Leased) error {
	defer s.done("Release")
	return s.Store.Release(ctx, agent, leased)
}

func (s *spy) Delivered(ctx context.Context, ids []string, at time.Time) error {
	defer s.done("Delivered")
	return s.Store.Delivered(ctx, ids, at)
}

func (s *spy) Touch(ctx context.Context, seen map[string]time.Time) error {
	defer s.done("Touch")
	s.set(func(s *spy) { s.touched = append(s.touched, seen) })
	return s.Store.Touch(ctx, seen)
}

func (s *spy) Used(ctx context.Context, used map[store.KeyName]time.Time) error {
	defer s.done("Used")
	s.mu.Lock()
	err := s.failUsed
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Used(ctx, used)
}

// touches are the times that were persisted for an agent.
func (s *spy) touches(agent string) (times []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seen := range s.touched {
		if at, ok := seen[agent]; ok {
			times = append(times, at)
		}
	}
	return slices.Clip(times)
}

func (s *spy) Probe(ctx context.Context) error {
	defer s.done("Probe")
	s.mu.Lock()
	err := s.failProbe
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Probe(ctx)
}
