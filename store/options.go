package store

import (
	"time"

	"github.com/google/uuid"
)

// WithDefaults fills in what was left out.
func (o Options) WithDefaults() Options {
	if o.Clock == nil {
		o.Clock = SystemClock{}
	}
	if o.NewID == nil {
		o.NewID = NewID
	}
	if o.TTL == 0 {
		o.TTL = 7 * 24 * time.Hour
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 3
	}
	if o.MaxQueued == 0 {
		o.MaxQueued = DefaultMaxQueued
	}
	if o.MaxQueuedBytes == 0 {
		o.MaxQueuedBytes = DefaultMaxQueuedBytes
	}
	if o.Observe == nil {
		o.Observe = func([]Event) {}
	}
	if o.Damaged == nil {
		o.Damaged = func(Damage) {}
	}
	if o.Committed == nil {
		o.Committed = func(Commit) {}
	}
	return o
}

// NewID makes a UUIDv7 (RFC 9562): ids made later sort later, which keeps
// index inserts at one end.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}
