package metrics

import "github.com/prometheus/client_golang/prometheus"

// HookStats are what became of hooks since the start, and what is under way.
type HookStats struct {
	// Events were fired; Failed of them failed, Dropped were not fired because
	// too many waited.
	Events, Failed, Dropped uint64
	// Running scripts, Waiting and Queued events.
	Running, Waiting, Queued int
}

// hookFigures collects them when it is asked.
type hookFigures struct {
	stats                   func() HookStats
	events, failed, dropped *prometheus.Desc
	running, waiting        *prometheus.Desc
}

func newHookFigures(stats func() HookStats) *hookFigures {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "hooks", name), help, nil, nil)
	}
	return &hookFigures{
		stats:   stats,
		events:  describe("events_total", "Events fired, also those with nothing to run."),
		failed:  describe("failed_total", "Events of which something failed."),
		dropped: describe("dropped_total", "Events dropped because too many waited."),
		running: describe("running", "Scripts that run."),
		waiting: describe("waiting", "Events that wait for their turn."),
	}
}

// Describe implements prometheus.Collector.
func (h *hookFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.events, h.failed, h.dropped, h.running, h.waiting} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (h *hookFigures) Collect(to chan<- prometheus.Metric) {
	s := h.stats()
	for d, value := range map[*prometheus.Desc]uint64{h.events: s.Events, h.failed: s.Failed, h.dropped: s.Dropped} {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	for d, value := range map[*prometheus.Desc]int{h.running: s.Running, h.waiting: s.Waiting + s.Queued} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
}
