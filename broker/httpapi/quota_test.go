package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// An inbox takes what the quota allows; what is more is refused aloud, and
// there is room again when the recipient has fetched something.
func TestQuota(t *testing.T) {
	r := newRelay(t, setup{maxQueued: 2})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1", "m2")
	a := ann.post("/messages", `{"to":"ben","id":"m3"}`)
	a.wantError(http.StatusTooManyRequests, agentrelay.CodeQueueFull)
	if got := a.header.Get("Retry-After"); got != "5" {
		t.Errorf("Retry-After is %q, want 5", got)
	}
	ann.post("/messages", `{"to":"ben","id":"m1","body":"another"}`).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	var again struct{ Duplicate bool }
	ann.post("/messages", `{"to":"ben","id":"m1","body":{"n":"m1"}}`).want(http.StatusOK, &again)
	if !again.Duplicate {
		t.Error("a duplicate is not answered as one while the inbox is full")
	}
	ann.wantState("m3", "not_found", 0)
	ben.pull(`{"limit":1}`)
	ann.send(ben, "m3")
}

// Hooks are not asked about what does not fit.
func TestQuotaComesBeforeHooks(t *testing.T) {
	hooks := &countingHooks{}
	r := newRelay(t, setup{maxQueued: 1, boundaries: broker.NewBoundaries(hooks, true)})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1")
	ann.post("/messages", `{"to":"ben","id":"m2"}`).wantError(http.StatusTooManyRequests, agentrelay.CodeQueueFull)
	if hooks.asked != 1 {
		t.Errorf("hooks were asked %d times, want once", hooks.asked)
	}
}

// countingHooks let everything in. They are asked by one client alone.
type countingHooks struct{ asked int }

func (h *countingHooks) Installed(kind hook.Kind) bool             { return kind == hook.PreMessage }
func (h *countingHooks) FireLater(hook.Kind, json.RawMessage) bool { return true }
func (h *countingHooks) Enforce(context.Context, hook.Kind, json.RawMessage) hook.Result {
	h.asked++
	return hook.Result{OK: true}
}
