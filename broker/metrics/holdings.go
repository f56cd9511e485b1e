package metrics

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agent-relay/agent-relay/store"
)

// commitHistograms tell of the store's commits.
type commitHistograms struct{ operations, duration prometheus.Observer }

func newCommitHistograms(r registrar) commitHistograms {
	return commitHistograms{
		operations: r.histogram("store_commit_operations", "Writes that shared a commit.",
			prometheus.ExponentialBuckets(1, 2, 9)).WithLabelValues(),
		duration: r.histogram("store_commit_duration_seconds", "Time from the beginning of a commit's first write until it was durable.",
			prometheus.ExponentialBuckets(.00025, 2, 16)).WithLabelValues(),
	}
}

// Committed notes a commit of the store.
func (m *Metrics) Committed(c store.Commit) {
	m.commits.operations.Observe(float64(c.Operations))
	m.commits.duration.Observe(c.Took.Seconds())
}

// holdings collects how much the store holds, when it is asked. What the store
// cannot tell is left out, and the rest is told all the same.
type holdings struct {
	stats                   func(context.Context) (store.Stats, error)
	clock                   store.Clock
	log                     *slog.Logger
	queued, leased, age     *prometheus.Desc
	databaseBytes, walBytes *prometheus.Desc
}

func newHoldings(o Options) *holdings {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil)
	}
	return &holdings{
		stats: o.Stats, clock: o.Clock, log: o.Log,
		queued:        describe("messages_queued", "Messages that wait to be handed over, in all inboxes."),
		leased:        describe("messages_leased", "Messages under a lease."),
		age:           describe("oldest_queued_message_age_seconds", "Time since the queued message was accepted that was accepted first; 0 if none is queued."),
		databaseBytes: describe("store_database_bytes", "Size of the database file."),
		walBytes:      describe("store_wal_bytes", "Size of the database's write-ahead log."),
	}
}

// Describe implements prometheus.Collector.
func (h *holdings) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.queued, h.leased, h.age, h.databaseBytes, h.walBytes} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (h *holdings) Collect(to chan<- prometheus.Metric) {
	stats, err := h.stats(context.Background())
	if err != nil {
		h.log.Error("count what is stored failed", "error", err)
		return
	}
	age := 0.0
	if !stats.OldestQueued.IsZero() {
		age = max(0, h.clock.Now().Sub(stats.OldestQueued).Seconds())
	}
	for d, value := range map[*prometheus.Desc]float64{
		h.queued: float64(stats.Queued), h.leased: float64(stats.Leased), h.age: age,
		h.databaseBytes: float64(stats.DatabaseBytes), h.walBytes: float64(stats.LogBytes),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
}
