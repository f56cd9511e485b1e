package sqlite

import (
	"fmt"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func TestEndedLeasesAreBounded(t *testing.T) {
	var e endedLeases
	for i := range 3 * maxEndedLeases {
		e = e.add(fmt.Sprint("lease-", i), agentrelay.OutcomeRetry, store.Settled{Status: agentrelay.StatusQueued, Attempts: i})
	}
	for i := range 3 * maxEndedLeases {
		got, found := e.find(fmt.Sprint("lease-", i), agentrelay.OutcomeRetry)
		if want := i >= 2*maxEndedLeases; found != want || found && got.Attempts != i {
			t.Errorf("lease %d: %v, %v", i, got, found)
		}
	}
	if _, found := e.find("lease-40", agentrelay.OutcomeCompleted); found {
		t.Error("another outcome is answered as the first")
	}
}
