package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestPull(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ben.post("/v1/pull", ``).wantBody(http.StatusOK, `{"messages":[],"count":0}`)
	ann.send(ben, "m1", "m2", "m3")
	got := ben.pull(`{"limit":2,"leaseSeconds":60}`)
	if fmt.Sprint(idsOf(got)) != "[m1 m2]" {
		t.Fatalf("pulled %v, want the oldest two", idsOf(got))
	}
	for _, m := range got {
		if m.Status != "leased" || m.Attempts != 0 || m.LeaseID == nil || *m.LeaseUntil != start.Add(time.Minute).UnixMilli() {
			t.Errorf("pulled %+v", m)
		}
	}
	if *got[0].LeaseID == *got[1].LeaseID {
		t.Error("two messages share a lease id")
	}
	// Leased messages are not delivered, and nobody else sees the lease id.
	if p := ben.poll(""); fmt.Sprint(idsOf(p.Messages)) != "[m3]" {
		t.Errorf("a poll finds %v, want m3", idsOf(p.Messages))
	}
	if list := ben.pull(``); fmt.Sprint(idsOf(list)) != "[m3]" {
		t.Errorf("another pull finds %v, want m3", idsOf(list))
	}
	for _, target := range []string{"/v1/recent", "/v1/messages/query"} {
		for _, m := range ben.list(target, `{}`) {
			if m.LeaseID != nil || m.LeaseUntil == nil || m.Status != "leased" {
				t.Errorf("%s shows %+v", target, m)
			}
		}
	}
	if p := ann.pull(``); len(p) != 0 {
		t.Errorf("ann pulled %v from her empty inbox", idsOf(p))
	}
}

func TestSettle(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	m := ben.pullOne(``)
	for range 2 {
		ben.settle(m, "retry").wantBody(http.StatusOK, `{"ok":true,"status":"queued","attempts":1}`)
	}
	again := ben.pullOne(``)
	if again.Attempts != 1 || again.Error == nil || *again.Error != "why" || *again.LeaseID == *m.LeaseID {
		t.Errorf("pulled again %+v", again)
	}
	// The lease that was settled answers as before, and changes nothing.
	ben.settle(m, "retry").wantBody(http.StatusOK, `{"ok":true,"status":"queued","attempts":1}`)
	ben.settle(m, "completed").wantError(http.StatusConflict, agentrelay.CodeLeaseMismatch)
	ben.wantState("m", "leased", 1)
	for range 2 {
		ben.settle(again, "completed").wantBody(http.StatusOK, `{"ok":true,"status":"done","attempts":1}`)
	}
	ben.settle(again, "retry").wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.settle(m, "retry").wantBody(http.StatusOK, `{"ok":true,"status":"queued","attempts":1}`)
	ben.post("/v1/lease/renew", fmt.Sprintf(`{"messageId":"m","leaseId":%q}`, *again.LeaseID)).wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.wantState("m", "done", 1)
	if list := ann.list("/v1/recent", ``); len(list) != 0 {
		t.Errorf("ann got receipts she did not ask for: %v", idsOf(list))
	}
}

func TestReceiptOfACompletedLease(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.post("/messages", `{"to":"ben","id":"m","ack":true}`).want(http.StatusCreated, nil)
	m := ben.pullOne(``)
	ben.settle(m, "completed").want(http.StatusOK, nil)
	ben.settle(m, "completed").want(http.StatusOK, nil)
	list := ann.poll("").Messages
	if len(list) != 1 || *list[0].ReplyTo != "m" || string(list[0].Body) != `{"status":"ok"}` {
		t.Fatalf("ann got %+v, want one receipt", list)
	}
	// An ack afterwards tells of the same receipt.
	ben.post("/messages/m/ack", `{"status":"error"}`).wantBody(http.StatusCreated, `{"accepted":true,"id":"`+list[0].ID+`"}`)
}

// An ack ends a message that is leased, too.
func TestAckOfALeasedMessage(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	m := ben.pullOne(``)
	ben.post("/messages/m/ack", ``).want(http.StatusCreated, nil)
	ben.settle(m, "completed").wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.wantState("m", "done", 0)
}

func TestLateSettlement(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	m := ben.pullOne(`{"leaseSeconds":60}`)
	r.clock.Jump(time.Hour) // the wall alone ends no lease
	renew := fmt.Sprintf(`{"messageId":"m","leaseId":%q,"leaseSeconds":60}`, *m.LeaseID)
	ben.post("/v1/lease/renew", renew).want(http.StatusOK, nil)
	r.clock.Advance(time.Minute - time.Millisecond)
	ben.post("/v1/lease/renew", renew).wantBody(http.StatusOK, fmt.Sprintf(`{"ok":true,"leaseUntil":%d}`, r.clock.Now().UnixMilli()+60000))
	r.clock.Advance(time.Minute)
	ben.settle(m, "completed").wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.post("/v1/lease/renew", renew).wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.wantState("m", "queued", 1)
	again := ben.pullOne(``)
	ben.settle(m, "completed").wantError(http.StatusConflict, agentrelay.CodeLeaseMismatch)
	ben.post("/v1/lease/renew", renew).wantError(http.StatusConflict, agentrelay.CodeLeaseMismatch)
	ben.settle(again, "completed").want(http.StatusOK, nil)
}

// Poll and pull find what a lease that ran out left behind.
func TestLeaseThatRanOutIsDeliveredAgain(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	seen := ben.poll("").Cursor
	ben.pullOne(`{"leaseSeconds":60}`)
	r.clock.Advance(time.Minute)
	p := ben.poll("?since=" + *seen)
	if len(p.Messages) != 1 || p.Messages[0].ID != "m" || p.Messages[0].Attempts != 1 || p.Messages[0].Status != "queued" {
		t.Errorf("after the cursor a poll finds %+v, want the message again", p.Messages)
	}
	if m := ben.pullOne(`{"leaseSeconds":60}`); m.Attempts != 1 {
		t.Errorf("pulled %+v", m)
	}
	r.clock.Advance(time.Minute)
	if m := ben.pullOne(``); m.Attempts != 2 {
		t.Errorf("pulled %+v", m)
	}
}

// A message whose attempts are spent fails, and its sender is told once.
func TestAttemptsAreSpent(t *testing.T) {
	for name, fail := range map[string]func(r *relay, ben agent, m envelope) answer{
		"retry": func(_ *relay, ben agent, m envelope) answer { return ben.settle(m, "retry") },
		"lapse": func(r *relay, ben agent, m envelope) answer {
			r.clock.Advance(time.Minute)
			return ben.settle(m, "completed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelay(t, setup{})
			ann, ben := r.agent("ann"), r.agent("ben")
			ann.send(ben, "m")
			for i := range 3 {
				fail(r, ben, ben.pullOne(`{"leaseSeconds":60}`))
				ben.wantState("m", "queued", i+1)
			}
			last := ben.pullOne(`{"leaseSeconds":60}`)
			a := fail(r, ben, last)
			if name == "retry" {
				a.wantBody(http.StatusOK, `{"ok":true,"status":"failed","attempts":4}`)
				ben.settle(last, "retry").wantBody(http.StatusOK, `{"ok":true,"status":"failed","attempts":4}`)
			} else {
				a.wantError(http.StatusConflict, agentrelay.CodeNotLeased)
			}
			ann.wantState("m", "failed", 4)
			list := ann.poll("").Messages
			if len(list) != 1 || list[0].Type != "ack" || list[0].From != "ben" || *list[0].ReplyTo != "m" ||
				!strings.HasPrefix(string(list[0].Body), `{"status":"error","error":"undelivered: `) {
				t.Fatalf("ann got %+v, want one error receipt", list)
			}
			// A receipt that fails in turn causes none.
			for range 4 {
				ann.settle(ann.pullOne(``), "retry").want(http.StatusOK, nil)
			}
			ann.wantState(list[0].ID, "failed", 4)
			if list := ben.poll("").Messages; len(list) != 0 {
				t.Errorf("ben got %v", idsOf(list))
			}
		})
	}
}

// The checks of a settlement come in a fixed order.
func TestOrderOfSettleChecks(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	ann.send(ben, "m")
	zoe.post("/v1/ack", `{"messageId":"none","leaseId":"x","outcome":"x"}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	zoe.post("/v1/ack", `{"messageId":"none","leaseId":"x","outcome":"retry"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchMessage)
	zoe.post("/v1/ack", `{"messageId":"m","leaseId":"x","outcome":"retry"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	ann.post("/v1/ack", `{"messageId":"m","leaseId":"x","outcome":"retry"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	ann.post("/v1/lease/renew", `{"messageId":"m","leaseId":"x"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	ben.post("/v1/ack", `{"messageId":"m","leaseId":"x","outcome":"retry"}`).wantError(http.StatusConflict, agentrelay.CodeNotLeased)
	ben.pull(``)
	ben.post("/v1/ack", `{"messageId":"m","leaseId":"x","outcome":"retry"}`).wantError(http.StatusConflict, agentrelay.CodeLeaseMismatch)
	ben.wantState("m", "leased", 0)
}

// Sender and recipient may ask where a message stands, others may not.
func TestStatus(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	ann.post("/messages", `{"to":"ben","id":"m","kind":"request"}`).want(http.StatusCreated, nil)
	const ask = `{"messageIds":["m","none","m"]}`
	const entry = `{"id":"m","status":"queued","attempts":0,"ts":"2026-03-14T09:26:53.589Z","from":"ann","to":"ben","kind":"request"}`
	const none = `{"id":"none","status":"not_found","attempts":0}`
	for _, a := range []agent{ann, ben} {
		a.post("/v1/status", ask).wantBody(http.StatusOK, `{"messages":[`+entry+`,`+none+`,`+entry+`]}`)
	}
	zoe.post("/v1/status", ask).wantBody(http.StatusOK, `{"messages":[`+strings.ReplaceAll(none, "none", "m")+`,`+none+`,`+strings.ReplaceAll(none, "none", "m")+`]}`)
	zoe.post("/v1/status", `{"messageIds":["not an id \u0000 \ud800"]}`).wantBody(http.StatusOK,
		`{"messages":[{"id":"not an id \u0000 `+"\ufffd"+`","status":"not_found","attempts":0}]}`)
}

func TestDeliveredAt(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "polled", "pulled")
	want := func(id, at string) {
		t.Helper()
		if got := ann.state(id).DeliveredAt; got != at {
			t.Errorf("%s was delivered at %q, want %q", id, got, at)
		}
	}
	want("polled", "")
	r.clock.Advance(time.Second)
	ben.poll("?limit=1")
	r.store.wait(t, "Delivered", 1)
	want("polled", "2026-03-14T09:26:54.589Z")
	want("pulled", "")
	r.clock.Advance(time.Second)
	ben.pull(``)
	want("polled", "2026-03-14T09:26:54.589Z") // the first hand-over
	want("pulled", "2026-03-14T09:26:55.589Z")
	// History hands nothing over.
	ann.send(ben, "read")
	ben.list("/v1/recent", ``)
	want("read", "")
}
