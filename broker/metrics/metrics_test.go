package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nothing(context.Context) (store.Stats, error) { return store.Stats{}, nil }

func newTested(stats func(context.Context) (store.Stats, error)) *Metrics {
	return New(Options{Version: "1.2.3", Stats: stats, Log: slog.New(slog.DiscardHandler)})
}

// all has something of every metric.
func (m *Metrics) all() *Metrics {
	m.Request("/messages", http.MethodPost, http.StatusCreated)
	m.Took("/messages", time.Millisecond)
	m.RateLimited("per_agent")
	return m
}

// Every metric is as Prometheus' linter wants it, the Go ones too.
func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(newTested(nothing).all().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What alerts take the rate of is there before it happens.
func TestRatesBeginWithZero(t *testing.T) {
	text, err := newTested(nothing).Text(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`auth_failures_total{reason="bad_signature"} 0`,
		`auth_failures_total{reason="timestamp_skew"} 0`,
		`http_rate_limited_total{limit="per_agent"} 0`,
		`http_rate_limited_total{limit="per_address"} 0`,
		`locked_requests_total 0`,
		`messages_failed_total{reason="attempts"} 0`,
		`messages_failed_total{reason="cancelled"} 0`,
		`auth_failures_total{reason="unknown_agent"} 0`,
	} {
		if !strings.Contains(string(text), "\n"+namespace+"_"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}

// Each step counts in one place, a failure that was acknowledged in two.
func TestEvents(t *testing.T) {
	m := newTested(nothing)
	ack := agentrelay.TypeAck
	for counter, e := range map[prometheus.Counter]store.Event{
		m.messages.acceptedMessage: {Kind: store.EventAccepted, Type: agentrelay.TypeMessage},
		m.messages.acceptedReceipt: {Kind: store.EventAccepted, Type: ack},
		m.messages.delivered:       {Kind: store.EventDelivered, Type: ack},
		m.messages.ackedOK:         {Kind: store.EventDone},
		m.messages.ackedError:      {Kind: store.EventFailed},
		m.messages.failedGivenUp:   {Kind: store.EventFailed, GivenUp: true},
		m.messages.failedCancelled: {Kind: store.EventFailed, Cancelled: true},
		m.messages.expired:         {Kind: store.EventExpired, Undelivered: true},
		m.messages.requeued:        {Kind: store.EventRequeued, Undelivered: true},
	} {
		before := total(t, m)
		m.Events([]store.Event{e, e})
		if got := testutil.ToFloat64(counter); got != 2 {
			t.Errorf("%+v twice counted %v", e, got)
		}
		want := 2.0
		if e.Kind == store.EventFailed && !e.GivenUp && !e.Cancelled {
			want = 4
		}
		if got := total(t, m) - before; got != want {
			t.Errorf("%+v twice added %v to all counters, want %v", e, got, want)
		}
	}
	before := total(t, m)
	m.Events([]store.Event{{Kind: "of a later version"}})
	if got := total(t, m); got != before {
		t.Errorf("an unknown kind counted %v", got-before)
	}
}

// total sums all counters of messages.
func total(t *testing.T, m *Metrics) (sum float64) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "agent_relay_messages_") {
			for _, metric := range f.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestHoldings(t *testing.T) {
	now := store.SystemClock{}.Now()
	stats := store.Stats{Queued: 2, Leased: 3, OldestQueued: now.Add(-time.Minute), DatabaseBytes: 4096, LogBytes: 12}
	h := newHoldings(Options{
		Stats: func(context.Context) (store.Stats, error) { return stats, nil },
		Clock: stopped{now}, Log: slog.New(slog.DiscardHandler),
	})
	want := func(age string) {
		t.Helper()
		if err := testutil.CollectAndCompare(h, strings.NewReader(`
# HELP agent_relay_messages_leased Messages under a lease.
# TYPE agent_relay_messages_leased gauge
agent_relay_messages_leased 3
# HELP agent_relay_messages_queued Messages that wait to be handed over, in all inboxes.
# TYPE agent_relay_messages_queued gauge
agent_relay_messages_queued 2
# HELP agent_relay_oldest_queued_message_age_seconds Time since the queued message was accepted that was accepted first; 0 if none is queued.
# TYPE agent_relay_oldest_queued_message_age_seconds gauge
agent_relay_oldest_queued_message_age_seconds `+age+`
# HELP agent_relay_store_database_bytes Size of the database file.
# TYPE agent_relay_store_database_bytes gauge
agent_relay_store_database_bytes 4096
# HELP agent_relay_store_wal_bytes Size of the database's write-ahead log.
# TYPE agent_relay_store_wal_bytes gauge
agent_relay_store_wal_bytes 12
`)); err != nil {
			t.Error(err)
		}
	}
	want("60")
	stats.OldestQueued = now.Add(time.Hour) // the clock was set back
	want("0")
	stats.OldestQueued = time.Time{}
	want("0")
}

type stopped struct{ now time.Time }

func (s stopped) Now() time.Time         { return s.now }
func (s stopped) Elapsed() time.Duration { return 0 }

func TestStoreThatCannotCount(t *testing.T) {
	text, err := newTested(func(context.Context) (store.Stats, error) { return store.Stats{}, errors.New("the cause") }).Text(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "store_wal_bytes") || !strings.Contains(string(text), "agent_relay_waiting_polls 0\n") {
		t.Errorf("got %s", text)
	}
}

// What cannot be gathered is an error, and not half a page.
func TestTextFails(t *testing.T) {
	m := newTested(nothing)
	m.registry.MustRegister(broken{})
	if text, err := m.Text(t.Context()); err == nil || text != nil {
		t.Errorf("got %s, %v", text, err)
	}
}

type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}
func (broken) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(errors.New("broken")), errors.New("broken"))
}

// Whoever resolves labels first, all count in the same place.
func TestHandlesAreShared(t *testing.T) {
	m := newTested(nothing)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				m.Request("/peers", http.MethodGet, 200+i%10)
				m.Waiting(1)
				m.Waiting(-1)
			}
		})
	}
	all.Wait()
	for i := range 10 {
		if got := testutil.ToFloat64(m.requests.get(requestKey{"/peers", http.MethodGet, 200 + i})); got != 80 {
			t.Errorf("%d requests with status %d, want 80", int(got), 200+i)
		}
	}
	if got := testutil.ToFloat64(m.waiting); got != 0 {
		t.Errorf("%v wait", got)
	}
}

// BenchmarkRequest is what a request's metrics cost it.
func BenchmarkRequest(b *testing.B) {
	m := newTested(nothing)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Request("/messages", http.MethodPost, http.StatusCreated)
			m.Took("/messages", 1400*time.Microsecond)
		}
	})
}

// BenchmarkEvents is what a commit of 25 messages costs the writer.
func BenchmarkEvents(b *testing.B) {
	m := newTested(nothing)
	events := make([]store.Event, 25)
	for i := range events {
		events[i] = store.Event{Kind: store.EventAccepted, Type: agentrelay.TypeMessage}
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Events(events)
		m.Committed(store.Commit{Operations: 25, Took: 1400 * time.Microsecond})
	}
}

// BenchmarkText is a scrape, but for the store's own figures.
func BenchmarkText(b *testing.B) {
	m := newTested(nothing).all()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Text(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
