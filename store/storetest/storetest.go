// Package storetest is the suite that every store driver must pass: examples
// of each rule of the contract, and a state machine that compares a store with
// a model in memory over random sequences of calls. It also has the Clock that
// tests set by hand.
//
// The flags -rapid.checks and -rapid.steps make the state machine run longer.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// TB is what the suite needs of a test; both *testing.T and *rapid.T have it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Opener opens the store that is kept in dir, making it if dir is empty, and
// ends the test if it cannot. The suite closes what it opened; it opens a
// directory again after that, never while it is open.
type Opener func(t TB, dir string, o store.Options) store.Store

// example shows one rule.
type example struct {
	name string
	test func(f *fixture)
}

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	t.Run("Registry", func(t *testing.T) { runExamples(t, open, registryExamples) })
	t.Run("Administer", func(t *testing.T) { runExamples(t, open, administerExamples) })
	t.Run("Keys", func(t *testing.T) { runExamples(t, open, keyExamples) })
	t.Run("Enqueue", func(t *testing.T) { runExamples(t, open, enqueueExamples) })
	t.Run("Poll", func(t *testing.T) { runExamples(t, open, pollExamples) })
	t.Run("Query", func(t *testing.T) { runExamples(t, open, queryExamples) })
	t.Run("Quota", func(t *testing.T) { runExamples(t, open, quotaExamples) })
	t.Run("Lease", func(t *testing.T) { runExamples(t, open, leaseExamples) })
	t.Run("LeaseEnd", func(t *testing.T) { runExamples(t, open, leaseEndExamples) })
	t.Run("Acknowledge", func(t *testing.T) { runExamples(t, open, acknowledgeExamples) })
	t.Run("Operator", func(t *testing.T) { runExamples(t, open, operatorExamples) })
	t.Run("Expiry", func(t *testing.T) { runExamples(t, open, expiryExamples) })
	t.Run("Clock", func(t *testing.T) { runExamples(t, open, clockExamples) })
	t.Run("Event", func(t *testing.T) { runExamples(t, open, eventExamples) })
	t.Run("Stats", func(t *testing.T) { runExamples(t, open, statsExamples) })
	t.Run("Reopen", func(t *testing.T) { runExamples(t, open, reopenExamples) })
	t.Run("Concurrent", func(t *testing.T) { runExamples(t, open, concurrentExamples) })
	t.Run("Machine", func(t *testing.T) { runMachine(t, open) })
}

func runExamples(t *testing.T, open Opener, examples []example) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			e.test(newFixture(t, open, t.TempDir(), store.Options{}))
		})
	}
}

// start is what the wall shows when a test begins.
var start = time.Date(2026, 3, 14, 9, 26, 53, 589_000_000, time.UTC).Local()

// ttl is the time to live of messages where options name none.
const ttl = 7 * 24 * time.Hour

// ctx is passed to every call: the suite tests no cancellation.
var ctx = context.Background()
