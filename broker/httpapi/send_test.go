package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestSendShorthand(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	var sent struct {
		Accepted, Duplicate bool
		ID                  string
	}
	a := ann.post("/messages", `{"to":"ben"}`)
	a.want(http.StatusCreated, &sent)
	if id, err := uuid.Parse(sent.ID); err != nil || id.Version() != 7 {
		t.Errorf("the broker made the id %q, want a UUIDv7", sent.ID)
	}
	a.wantBody(http.StatusCreated, `{"accepted":true,"id":"`+sent.ID+`","duplicate":false,"recipient":{"online":true,"lastSeen":1773480413}}`)
	a.wantHeaders()
	ben.get("/messages").wantBody(http.StatusOK, `{"messages":[{"id":"`+sent.ID+`","from":"ann","to":"ben","ts":"2026-03-14T09:26:53.589Z",`+
		`"type":"message","body":{},"replyTo":null,"ack":false,"kind":"message","rootId":null,"parentId":null,"status":"queued","attempts":0,`+
		`"leaseUntil":null,"leaseId":null}],"cursor":"`+*ben.poll("").Cursor+`"}`)
}

func TestSendWholeEnvelope(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	const id = `a/b..c:~@!$&'()*+,;=`
	ann.post("/messages", `{"id":"`+id+`","from":"ann","to":"ben","ts":"1999-01-01T00:00:00.000Z","type":"ack","body":[1],"replyTo":"m0","ack":true,`+
		`"kind":"reply","rootId":"r","parentId":"p","status":"failed","attempts":7,"leaseUntil":5,"leaseId":"mine","unknown":{"x":1},"TO":"zoe"}`).want(http.StatusCreated, nil)
	ben.get("/messages").wantBody(http.StatusOK, `{"messages":[{"id":"`+id+`","from":"ann","to":"ben","ts":"2026-03-14T09:26:53.589Z",`+
		`"type":"ack","body":[1],"replyTo":"m0","ack":true,"kind":"reply","rootId":"r","parentId":"p","status":"queued","attempts":0,`+
		`"leaseUntil":null,"leaseId":null}],"cursor":"`+*ben.poll("").Cursor+`"}`)
	ann.post("/messages", `{"id":null,"from":null,"to":"ben","type":null,"body":null,"replyTo":null,"kind":null,"rootId":null,"parentId":null}`).want(http.StatusCreated, nil)
	if m := ben.poll("").Messages[1]; m.Type != "message" || m.Kind != "message" || string(m.Body) != "null" || m.ReplyTo != nil || m.RootID != nil || m.ParentID != nil || m.From != "ann" {
		t.Errorf("an envelope of nulls became %+v", m)
	}
}

// Each of these breaks a rule and all that follow it; the message names the
// first.
func TestOrderOfSendChecks(t *testing.T) {
	r := newRelay(t, setup{targets: map[string][]string{"ann": {"ann", "ben"}}})
	ann := r.agent("ann")
	r.agent("ben")
	r.agent("zoe")
	ann.post("/messages", `{"to":"ben","id":"known"}`).want(http.StatusCreated, nil)
	for _, c := range []struct {
		body, mentions string
		status         int
		code           agentrelay.Code
	}{
		{`{"id":"","to":1,`, `JSON`, 400, "bad_request"},
		{`[{"id":"","to":1}]`, `object`, 400, "bad_request"},
		{`{"id":"","to":1,"type":1,"kind":1,"from":1}`, `"id"`, 400, "bad_request"},
		{`{"id":"known","to":1,"type":1,"kind":1,"from":1}`, `"to"`, 400, "bad_request"},
		{`{"id":"known","type":1,"kind":1,"from":1}`, `"to"`, 400, "bad_request"},
		{`{"id":"known","to":"ann","type":"x","kind":1,"from":1}`, `"type"`, 400, "bad_request"},
		{`{"id":"known","to":"ann","kind":"x","from":1}`, `"kind"`, 400, "bad_request"},
		{`{"id":"known","to":"ann","from":"zoe"}`, `"from"`, 400, "bad_request"},
		{`{"id":"known","to":"ann"}`, `itself`, 400, "bad_request"},
		{`{"id":"known","to":"zoe"}`, `routing`, 403, "forbidden"},
		{`{"id":"known","to":"nobody"}`, `routing`, 403, "forbidden"},
		{`{"id":"known","to":"ben","body":1}`, `id`, 422, "id_conflict"},
	} {
		f := ann.post("/messages", c.body).wantError(c.status, c.code)
		if !strings.Contains(f.Message, c.mentions) {
			t.Errorf("%s: the message is %q, want it to mention %s", c.body, f.Message, c.mentions)
		}
	}
	// Whoever names itself must name itself.
	ann.post("/messages", `{"to":"ben","agent":"ben"}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	ann.post("/messages", `{"to":"ben","agent":"ann"}`).want(http.StatusCreated, nil)
	zoe := agent{r, "zoe"}
	// A known id comes before the recipient, who may be anybody.
	zoe.post("/messages", `{"id":"known","to":"nobody"}`).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	zoe.post("/messages", `{"to":"nobody"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
}

func TestBadIDs(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.agent("ben")
	for _, id := range []string{
		``, `/`, `a/`, `/a`, `a//b`, `.`, `..`, `a/.`, `../a`, `a/../b`, `cursor:x`, `connector:x`, `a b`, `a%b`, `a?b`, `a#b`, `ä`, `a\\b`, `a\"b`, `a\u0000`,
		strings.Repeat("a", 129), `a|b`, `[a]`, `{a}`, `<a>`, "a^", "a`",
	} {
		ann.post("/messages", `{"to":"ben","id":"`+id+`"}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	for _, id := range []string{strings.Repeat("a", 128), `...`, `a/..b`, `Cursor:x`, `a/cursor:x`, `-`, `0`, `\u0061b`} {
		ann.post("/messages", `{"to":"ben","id":"`+id+`"}`).want(http.StatusCreated, nil)
	}
	for _, id := range []string{`1`, `true`, `["a"]`, `{}`} {
		ann.post("/messages", `{"to":"ben","id":`+id+`}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
}

func TestDuplicatesAndConflicts(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	const first = `{"to":"ben","id":"m","body":{"a":1}}`
	ann.post("/messages", first).want(http.StatusCreated, nil)
	const again = `{"accepted":true,"id":"m","duplicate":true,"recipient":{"online":true,"lastSeen":1773480413}}`
	for _, body := range []string{
		first, first,
		`{"id": "m", "body": {"a":1}, "to": "ben", "unknown": 1}`,
		`{"id":"m","from":"ann","to":"ben","type":"message","kind":"message","ack":false,"replyTo":null,"body":{"a":1},"status":"done"}`,
	} {
		ann.post("/messages", body).wantBody(http.StatusOK, again)
	}
	for _, body := range []string{
		`{"to":"ben","id":"m","body":{"a": 1}}`, `{"to":"ben","id":"m"}`, `{"to":"zoe","id":"m","body":{"a":1}}`,
		`{"to":"ben","id":"m","body":{"a":1},"kind":"request"}`, `{"to":"ben","id":"m","body":{"a":1},"type":"ack"}`,
		`{"to":"ben","id":"m","body":{"a":1},"ack":true}`, `{"to":"ben","id":"m","body":{"a":1},"replyTo":"x"}`,
		`{"to":"ben","id":"m","body":{"a":1},"rootId":"x"}`, `{"to":"ben","id":"m","body":{"a":1},"parentId":"x"}`,
	} {
		ann.post("/messages", body).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	}
	zoe.post("/messages", first).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	if p := ben.poll(""); len(p.Messages) != 1 || string(p.Messages[0].Body) != `{"a":1}` {
		t.Errorf("the inbox holds %v", idsOf(p.Messages))
	}
	if p := zoe.poll(""); len(p.Messages) != 0 {
		t.Errorf("a refused message reached %v", idsOf(p.Messages))
	}
	// It stays a duplicate when the message is done.
	ben.post("/messages/m/ack", ``).want(http.StatusCreated, nil)
	ann.post("/messages", first).wantBody(http.StatusOK, again)
	if p := ben.poll(""); len(p.Messages) != 0 {
		t.Errorf("a duplicate brought back %v", idsOf(p.Messages))
	}
}

func TestRoutingRules(t *testing.T) {
	r := newRelay(t, setup{targets: map[string][]string{"tom": {"ben"}, "mute": {}}})
	ann, ben, tom, mute := r.agent("ann"), r.agent("ben"), r.agent("tom"), r.agent("mute")
	tom.send(ben, "m1")
	ann.send(tom, "m2") // one that has no entry may send to all
	ben.send(tom, "m3")
	tom.post("/messages", `{"to":"ann"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	mute.post("/messages", `{"to":"ben"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	// Nobody learns from a refusal whether an agent or an id is known.
	tom.post("/messages", `{"to":"nobody"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	tom.post("/messages", `{"to":"ann","id":"m2"}`).wantError(http.StatusForbidden, agentrelay.CodeForbidden)
	// Receipts go where messages may not.
	tom.post("/messages/m2/ack", ``).want(http.StatusCreated, nil)
	if p := ann.poll(""); len(p.Messages) != 1 || p.Messages[0].Type != "ack" {
		t.Errorf("ann got %+v, want a receipt", p.Messages)
	}
}

func TestSuggestions(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	for _, name := range []string{"team-lead", "Reviewer", "review", "reviewed", "reviews", "x1"} {
		r.agent(name)
	}
	for name, want := range map[string]string{
		"team_lead": "[team-lead]", "TeamLead": "[team-lead]", "team.leed": "[team-lead]",
		"reviewer": "[Reviewer reviewed review]", "zzzzzz": "[]", "bob": "[]", "x2": "[x1]", "team-lead-of-another-team": "[]",
	} {
		f := ann.post("/messages", `{"to":"`+name+`"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
		if f.Suggestions == nil || fmt.Sprint(*f.Suggestions) != want {
			t.Errorf("for %s the broker suggests %v, want %s", name, f.Suggestions, want)
		}
		if !strings.Contains(f.Message, name) {
			t.Errorf("the message does not name %s: %s", name, f.Message)
		}
	}
	f := ann.post("/messages", `{"to":"team_lead"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
	if !strings.Contains(f.Message, `"team-lead"`) {
		t.Errorf("the message does not name the agent that was meant: %s", f.Message)
	}
	if p := ann.poll(""); len(p.Messages) != 0 {
		t.Errorf("a refused message left %v", idsOf(p.Messages))
	}
}

// The sender is told that the recipient is away, and since when.
func TestRecipientThatNeverCameBack(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ben")
	r.clock.Advance(3 * time.Hour)
	ann := r.agent("ann")
	const away = `"recipient":{"online":false,"lastSeen":1773480413}}`
	const body = `{"to":"ben","id":"m"}`
	ann.post("/messages", body).wantBody(http.StatusCreated, `{"accepted":true,"id":"m","duplicate":false,`+away)
	ann.post("/messages", body).wantBody(http.StatusOK, `{"accepted":true,"id":"m","duplicate":true,`+away)
}
