package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace begins the name of every metric of the relay's own.
const namespace = "agent_relay"

// registrar makes metrics and registers them.
type registrar struct{ *prometheus.Registry }

func (r registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.MustRegister(v)
	return v
}

func (r registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	r.MustRegister(v)
	return v
}

func (r registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(v)
	return v
}

// handles keeps what was resolved from labels, so that to count costs a look-up
// without a lock. Keys are few, and each is added once.
type handles[K comparable, H any] struct {
	resolve func(K) H
	known   atomic.Pointer[map[K]H]
	mu      sync.Mutex
}

func (h *handles[K, H]) get(key K) H {
	if known := h.known.Load(); known != nil {
		if handle, ok := (*known)[key]; ok {
			return handle
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	more := map[K]H{}
	if known := h.known.Load(); known != nil {
		maps.Copy(more, *known)
	}
	more[key] = h.resolve(key) // the same, if somebody else came first
	h.known.Store(&more)
	return more[key]
}
