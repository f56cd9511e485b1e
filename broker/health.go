package broker

import (
	"context"
	"sync"
	"time"
)

const (
	// probeEvery is how often at most the store is probed; all who ask
	// meanwhile share the answer.
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second
)

type health struct {
	mu     sync.Mutex
	probed time.Time
	err    error
}

// Health is nil if the store can write and nothing in it is damaged.
func (b *Broker) Health(ctx context.Context) error {
	if err := b.options.Damage.err(); err != nil {
		return err
	}
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.probed.IsZero() && time.Since(h.probed) < probeEvery {
		return h.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	h.err = b.store.Probe(ctx)
	h.probed = time.Now()
	return h.err
}
