package broker

import (
	"context"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// deliveries are first hand-overs by poll that the store is yet to record. No
// poll waits for that. A message is in it once, however often it is polled.
type deliveries struct {
	mu    sync.Mutex
	at    map[string]time.Time
	ready chan struct{}
}

// maxDeliveries bounds what one write records.
const maxDeliveries = 500

func newDeliveries() *deliveries {
	return &deliveries{at: map[string]time.Time{}, ready: make(chan struct{}, 1)}
}

// add notes the messages of a page that were not handed over before.
func (d *deliveries) add(messages []agentrelay.Message, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range messages {
		if _, noted := d.at[m.ID]; !noted && m.DeliveredAt.IsZero() {
			d.at[m.ID] = now
		}
	}
	if len(d.at) > 0 {
		select {
		case d.ready <- struct{}{}:
		default:
		}
	}
}

// some returns a bounded number of what was noted, which stays noted.
func (d *deliveries) some() (ids []string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, t := range d.at {
		if ids = append(ids, id); at.IsZero() || t.Before(at) {
			at = t
		}
		if len(ids) == maxDeliveries {
			break
		}
	}
	return ids, at
}

func (d *deliveries) done(ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.at, id)
	}
}

// recordDeliveries writes hand-overs as they come, and the last ones at the
// end.
func (b *Broker) recordDeliveries(ctx context.Context) {
	for {
		select {
		case <-b.deliveries.ready:
			b.writeDeliveries(ctx)
		case <-ctx.Done():
			b.writeDeliveries(ctx)
			return
		}
	}
}

func (b *Broker) writeDeliveries(ctx context.Context) {
	for {
		ids, at := b.deliveries.some()
		if len(ids) == 0 {
			return
		}
		bounded, cancel := detach(ctx)
		err := b.store.Delivered(bounded, ids, at)
		cancel()
		if err != nil {
			// What is still noted is written with the next hand-over.
			b.background("record hand-overs", err)
			return
		}
		b.deliveries.done(ids)
	}
}
