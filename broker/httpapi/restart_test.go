package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// All that a client was told holds when the broker comes back.
func TestRestart(t *testing.T) {
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "done", "failed", "leased", "retried", "m1", "m2")
	firstAck := ben.post("/messages/done/ack", ``)
	firstAck.want(http.StatusCreated, nil)
	ben.post("/messages/failed/ack", `{"status":"error","error":"no"}`).want(http.StatusCreated, nil)
	work := ben.pull(`{"limit":2,"leaseSeconds":3600}`)
	ben.settle(work[1], "retry").want(http.StatusOK, nil)
	cursor := *ben.poll("?limit=1").Cursor
	ann.post("/messages", `{"to":"ben","id":"body","body":{"n": 12345678901234567890}}`).want(http.StatusCreated, nil)
	receipts := idsOf(ann.poll("").Messages)

	s.clock = r.clock
	r.stop()
	s.clock.Jump(time.Minute)
	r = newRelay(t, s)
	ann, ben = agent{r, "ann"}, agent{r, "ben"}

	ann.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"ann","online":true,"lastSeen":1773480473},{"agent":"ben","online":true,"lastSeen":1773480413}]}`)
	if p := ben.poll("?since=" + cursor); fmt.Sprint(idsOf(p.Messages)) != "[m2 retried body]" || p.Reset != nil {
		t.Errorf("the old cursor finds %v, reset %v", idsOf(p.Messages), p.Reset)
	} else if got := string(p.Messages[2].Body); got != `{"n": 12345678901234567890}` {
		t.Errorf("the body is %s", got)
	}
	if got := idsOf(ann.poll("").Messages); fmt.Sprint(got) != fmt.Sprint(receipts) || len(got) != 2 {
		t.Errorf("ann has the receipts %v, before %v", got, receipts)
	}
	ben.wantState("done", "done", 0)
	ben.wantState("failed", "failed", 0)
	ben.wantState("leased", "leased", 0)
	ben.wantState("retried", "queued", 1)
	ben.post("/messages/done/ack", `{"status":"error"}`).wantBody(http.StatusCreated, firstAck.body)
	ann.post("/messages", `{"to":"ben","id":"done","body":{"n":"done"}}`).want(http.StatusOK, nil)
	ann.post("/messages", `{"to":"ben","id":"done","body":{"n":"else"}}`).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	ben.settle(work[1], "retry").wantBody(http.StatusOK, `{"ok":true,"status":"queued","attempts":1}`)
	ben.settle(work[0], "completed").wantBody(http.StatusOK, `{"ok":true,"status":"done","attempts":0}`)
}

// A cursor of a database that was deleted returns everything, and says so.
func TestDatabaseThatWasReplaced(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "old")
	cursor := *ben.poll("").Cursor
	r.stop()

	r = newRelay(t, setup{})
	ann, ben = r.agent("ann"), r.agent("ben")
	ann.send(ben, "new1", "new2")
	if p := ben.poll("?since=" + cursor); fmt.Sprint(idsOf(p.Messages)) != "[new1 new2]" || p.Reset == nil || !*p.Reset {
		t.Errorf("the old cursor finds %v, reset %v; want everything and reset", idsOf(p.Messages), p.Reset)
	}
}

// Leases that ran out while the broker was down live a little longer, so that
// work that went on meanwhile can be settled.
func TestLeaseThatRanOutWhileTheBrokerWasDown(t *testing.T) {
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "settled", "left")
	work := ben.pull(`{"leaseSeconds":60}`)
	s.clock = r.clock
	r.stop()
	s.clock.Jump(time.Hour)
	r = newRelay(t, s)
	ben = agent{r, "ben"}
	ben.settle(work[0], "completed").wantBody(http.StatusOK, `{"ok":true,"status":"done","attempts":0}`)
	r.clock.Advance(30 * time.Second)
	if m := ben.pullOne(``); m.ID != "left" || m.Attempts != 0 {
		t.Errorf("pulled %+v, want the other message, uncounted", m)
	}
	ben.settle(work[1], "completed").wantError(http.StatusConflict, agentrelay.CodeLeaseMismatch)
}
