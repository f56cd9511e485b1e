package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Old clients put ids into the path as they are, others escape them.
func TestAckPaths(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	for _, id := range []string{
		"plain", "a/b", "a/b/c", "a.b", "...", "a/...", "a:b", "a+b", "a~@!$&'()*,;=-_b", "x/ack", "ack", "ack/ack", "messages/x/ack", "v1/pull",
		strings.Repeat("a", 128), strings.Repeat("a/", 63) + "b",
	} {
		ann.send(ben, id)
		var first, again struct {
			Accepted bool
			ID       string
		}
		ben.post("/messages/"+id+"/ack", `{"status":"ok"}`).want(http.StatusCreated, &first)
		everything := new(strings.Builder)
		for _, c := range []byte(id) {
			everything.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])) + string("0123456789abcdef"[c&15]))
		}
		for _, path := range []string{id, url.PathEscape(id), url.QueryEscape(id), everything.String()} {
			ben.post("/messages/"+path+"/ack", `{"status":"ok"}`).want(http.StatusCreated, &again)
			if again != first || !first.Accepted {
				t.Errorf("acknowledged as %s: %+v, want %+v", path, again, first)
			}
		}
		ben.wantState(id, "done", 0)
		if list := ann.list("/v1/recent", `{"limit":1}`); len(list) != 1 || list[0].ID != first.ID || *list[0].ReplyTo != id {
			t.Errorf("the receipt of %s is %+v", id, list)
		}
	}
}

func TestAckPathsThatHoldNoID(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	for _, path := range []string{"/messages//ack", "/messages/../ack", "/messages/a//ack", "/messages/%20/ack", "/messages/a%00b/ack", "/messages/%2F/ack", "/messages/" + strings.Repeat("a", 129) + "/ack", "/messages/a%3Fb/ack", "/messages/%C3%A9/ack", "/messages/é/ack"} {
		ben.post(path, ``).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	for _, path := range []string{"/messages/ack", "/messages/a/ack/", "/messages/a/Ack", "/messages/a%2fack", "/Messages/a/ack", "/messages/a/ack/b"} {
		ben.post(path, ``).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
	}
	for _, id := range []string{"none", "cursor:x:1", "connector:x"} {
		ben.post("/messages/"+id+"/ack", ``).wantError(http.StatusNotFound, agentrelay.CodeNoSuchMessage)
	}
}

func TestAckOutcomes(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	for id, c := range map[string]struct{ body, status, receipt string }{
		"empty":  {``, "done", `{"status":"ok"}`},
		"object": {`{}`, "done", `{"status":"ok"}`},
		"null":   {`{"status":null,"error":null}`, "done", `{"status":"ok"}`},
		"ok":     {`{"status":"ok","error":"ignored"}`, "done", `{"status":"ok"}`},
		"error":  {`{"status":"error","error":"because \"x\""}`, "failed", `{"status":"error","error":"because \"x\""}`},
		"bare":   {`{"status":"error"}`, "failed", `{"status":"error","error":""}`},
	} {
		ann.send(ben, id)
		ben.post("/messages/"+id+"/ack", c.body).want(http.StatusCreated, nil)
		ben.wantState(id, c.status, 0)
		list := ann.list("/v1/recent", `{"limit":1}`)
		if len(list) != 1 || list[0].Type != "ack" || list[0].From != "ben" || list[0].To != "ann" || *list[0].ReplyTo != id || list[0].Kind != "message" || list[0].Ack {
			t.Fatalf("the receipt of %s is %+v", id, list)
		}
		if string(list[0].Body) != c.receipt {
			t.Errorf("the receipt of %s is %s, want %s", id, list[0].Body, c.receipt)
		}
	}
	ann.send(ben, "open")
	for _, body := range []string{
		`{"status":"done"}`, `{"status":"OK"}`, `{"status":""}`, `{"status":1}`, `{"status":true}`, `{"status":"error","error":1}`, `{"status":"ok","error":[]}`, `[]`, `"ok"`, `null`,
	} {
		ben.post("/messages/open/ack", body).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	ben.wantState("open", "queued", 0)
	if n := len(ann.list("/v1/recent", `{}`)); n != 6 {
		t.Errorf("ann has %d receipts, want 6", n)
	}
}

func TestAckRepeated(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	first := ben.post("/messages/m/ack", `{"status":"error","error":"one"}`)
	first.want(http.StatusCreated, nil)
	for _, body := range []string{`{"status":"error","error":"one"}`, `{"status":"error","error":"two"}`, `{"status":"ok"}`, ``} {
		ben.post("/messages/m/ack", body).wantBody(http.StatusCreated, first.body)
	}
	ben.wantState("m", "failed", 0)
	list := ann.poll("").Messages
	if len(list) != 1 || string(list[0].Body) != `{"status":"error","error":"one"}` {
		t.Errorf("ann got %+v, want one receipt", list)
	}
	if p := ben.poll(""); len(p.Messages) != 0 {
		t.Errorf("an acknowledged message is delivered: %v", idsOf(p.Messages))
	}
}

func TestAckRefused(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	ann.send(ben, "m")
	for _, other := range []agent{ann, zoe} {
		other.post("/messages/m/ack", ``).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	}
	ben.wantState("m", "queued", 0)
	var receipt struct{ ID string }
	ben.post("/messages/m/ack", ``).want(http.StatusCreated, &receipt)
	ann.post("/messages/"+receipt.ID+"/ack", ``).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	zoe.post("/messages/"+receipt.ID+"/ack", ``).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	// A message that says of itself that it is one is a receipt, too.
	ann.post("/messages", `{"to":"ben","id":"own","type":"ack"}`).want(http.StatusCreated, nil)
	ben.post("/messages/own/ack", ``).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
}

// A receipt reaches a sender that never registered, and it can be read.
func TestReceiptToUnregisteredSender(t *testing.T) {
	r := newRelay(t, setup{})
	ben, ghost := r.agent("ben"), agent{r, "ghost"}
	ghost.send(ben, "m")
	ben.post("/messages/m/ack", ``).want(http.StatusCreated, nil)
	p := ghost.poll("?wait=30")
	if len(p.Messages) != 1 || *p.Messages[0].ReplyTo != "m" {
		t.Fatalf("the ghost got %+v", p.Messages)
	}
	ben.post("/messages", `{"to":"ghost"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
	ben.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"ben","online":true,"lastSeen":1773480413}]}`)
	if m := ghost.pullOne(``); m.ID != p.Messages[0].ID {
		t.Errorf("the ghost pulled %s", m.ID)
	}
}
