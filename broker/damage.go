package broker

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/agent-relay/agent-relay/store"
)

// Damage keeps what the store found to be damaged. A broker whose store is
// damaged goes on, but is not healthy.
type Damage struct {
	log   *slog.Logger
	mu    sync.Mutex
	first error
}

// NewDamage returns Damage of nothing.
func NewDamage(log *slog.Logger) *Damage { return &Damage{log: log} }

// Observe notes and logs damage. It does not block.
func (d *Damage) Observe(found store.Damage) {
	d.log.Error("the store is damaged; stop the broker, look with `agent-relay store check`, and save what is readable with `agent-relay store salvage`",
		"id", found.ID, "what", found.What)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == nil {
		d.first = fmt.Errorf("the store is damaged: %s", found.What)
	}
}

// err is nil as long as nothing is known to be damaged.
func (d *Damage) err() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}
