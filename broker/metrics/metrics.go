// Package metrics counts what the store, the broker and the HTTP API tell of
// themselves, and writes it in Prometheus' text format. PROTOCOL.md, "GET
// /metrics", is its catalogue.
//
// No label has a value that a client can choose.
package metrics

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Options are what metrics need.
type Options struct {
	// Version is the program's.
	Version string
	// Stats tells how much the store holds. It is called at each scrape.
	Stats func(context.Context) (store.Stats, error)
	// Hooks tells what became of hooks. Default: there are none.
	Hooks func() HookStats
	// Clock measures how old the oldest message is. Default SystemClock.
	Clock store.Clock
	Log   *slog.Logger
}

// Metrics is an observer of the store, the broker and the HTTP API. Its methods
// may be called at once from anywhere; those that count do not block.
type Metrics struct {
	registry *prometheus.Registry
	messages messageCounters
	commits  commitHistograms

	requests    handles[requestKey, prometheus.Counter]
	durations   handles[string, prometheus.Observer]
	rateLimited handles[string, prometheus.Counter]
	authFailed  handles[agentrelay.Reason, prometheus.Counter]
	locked      prometheus.Counter
	waiting     prometheus.Gauge
}

// requestKey is the labels of a request.
type requestKey struct {
	route, method string
	status        int
}

// New returns metrics at zero.
func New(o Options) *Metrics {
	if o.Clock == nil {
		o.Clock = store.SystemClock{}
	}
	r := registrar{prometheus.NewRegistry()}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newHoldings(o),
	)
	if o.Hooks != nil {
		r.MustRegister(newHookFigures(o.Hooks))
	}
	r.gauge("build_info", "The program's version and that of Go; always 1.", "version", "go_version").
		WithLabelValues(o.Version, runtime.Version()).Set(1)

	requests := r.counter("http_requests_total", "Requests answered.", "route", "method", "status")
	durations := r.histogram("http_request_duration_seconds",
		"Time from a request's headers until its answer was written, of requests that could not wait for a message.",
		[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "route")
	limited := r.counter("http_rate_limited_total", "Requests refused over a rate limit.", "limit")
	authFailed := r.counter("auth_failures_total", "Requests whose credentials were refused.", "reason")
	m := &Metrics{
		registry: r.Registry,
		messages: newMessageCounters(r),
		commits:  newCommitHistograms(r),
		locked:   r.counter("locked_requests_total", "Requests refused because their agent was locked.").WithLabelValues(),
		waiting:  r.gauge("waiting_polls", "Polls and pulls that wait for a message.").WithLabelValues(),
	}
	m.requests.resolve = func(k requestKey) prometheus.Counter {
		return requests.WithLabelValues(k.route, k.method, strconv.Itoa(k.status))
	}
	m.durations.resolve = func(route string) prometheus.Observer { return durations.WithLabelValues(route) }
	m.rateLimited.resolve = func(limit string) prometheus.Counter { return limited.WithLabelValues(limit) }
	m.authFailed.resolve = func(reason agentrelay.Reason) prometheus.Counter {
		return authFailed.WithLabelValues(string(reason))
	}
	// A rate begins with a zero.
	for _, reason := range append(agentrelay.Reasons(), agentrelay.Reason(agentrelay.CodeUnknownAgent)) {
		m.authFailed.get(reason)
	}
	for _, limit := range []string{"per_agent", "per_address"} {
		m.rateLimited.get(limit)
	}
	return m
}

// Text gathers all metrics in Prometheus' text format.
func (m *Metrics) Text(context.Context) ([]byte, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// Request counts an answered request.
func (m *Metrics) Request(route, method string, status int) {
	m.requests.get(requestKey{route, method, status}).Inc()
}

// Took notes how long a request took.
func (m *Metrics) Took(route string, took time.Duration) {
	m.durations.get(route).Observe(took.Seconds())
}

// RateLimited counts a request that was refused over a limit.
func (m *Metrics) RateLimited(limit string) { m.rateLimited.get(limit).Inc() }

// AuthFailed counts a request whose credentials were refused.
func (m *Metrics) AuthFailed(reason agentrelay.Reason) { m.authFailed.get(reason).Inc() }

// Locked counts a request that was refused because its agent is locked.
func (m *Metrics) Locked() { m.locked.Inc() }

// Duplicate counts a message that was sent again.
func (m *Metrics) Duplicate() { m.messages.duplicate.Inc() }

// Conflict counts a message that was sent under the id of another.
func (m *Metrics) Conflict() { m.messages.conflict.Inc() }

// Waiting adds to the polls that wait.
func (m *Metrics) Waiting(more int) { m.waiting.Add(float64(more)) }
