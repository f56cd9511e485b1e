package broker

import (
	"context"
	"sync"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

const (
	// countEvery is how often at most the store is asked for its statistics;
	// all who ask meanwhile share the answer. Where counting takes long, it is
	// done less often, so that it takes a hundredth of the time at most.
	countEvery   = time.Second
	countShare   = 100
	countTimeout = 5 * time.Second
)

type statistics struct {
	mu      sync.Mutex
	latest  store.Stats
	err     error
	expires time.Time
}

// Stats tells how much the store holds. The answer may be a few seconds old.
func (b *Broker) Stats(ctx context.Context) (store.Stats, error) {
	s := &b.statistics
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if began.Before(s.expires) {
		return s.latest, s.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
	defer cancel()
	s.latest, s.err = b.store.Stats(ctx)
	ended := time.Now()
	s.expires = ended.Add(max(countEvery, countShare*ended.Sub(began)))
	return s.latest, s.err
}
