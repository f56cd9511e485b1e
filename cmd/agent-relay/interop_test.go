package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
)

// These tests run the clients of protocol 1.0 that are in testdata/clients
// against the whole broker, unmodified. Where Python or Node is missing they
// are skipped; AGENT_RELAY_REQUIRE_PEERS=1 makes that a failure.

const interopSecret = "6b1f0c3a9d5e48f7a2c4e6081b3d5f7092a4c6e8f0b1d3c5e7f9a0b2c4d6e8f1"

// What the clients send as bodies, as each of them writes it.
const (
	pythonBody = `{"text": "r\u00e9sum\u00e9 \u2713 \ud83d\ude0a \u2028 \"q\" \\ /", "n": 12345678901234567890, "list": [1, 2.5, null, true, {}]}`
	nodeBody   = `{"text":"résumé ✓ 😊 ` + "\u2028" + ` \"q\" \\ /","n":9007199254740991,"list":[1,2.5,null,true,{}]}`
)

func TestInteropPythonToNode(t *testing.T) {
	b := startInteropBroker(t)
	testInterop(t, b, startPython(t, b.url, "alpha"), startNode(t, b.url, "beta"), pythonBody)
}

func TestInteropNodeToPython(t *testing.T) {
	b := startInteropBroker(t)
	testInterop(t, b, startNode(t, b.url, "alpha"), startPython(t, b.url, "beta"), nodeBody)
}

// testInterop takes two clients through the protocol: alpha sends, beta
// receives. body is what alpha's JSON library makes of its value.
func testInterop(t *testing.T, b *interopBroker, alpha, beta *oldClient, body string) {
	for _, c := range []*oldClient{alpha, beta} {
		if got := c.ok("handshake", nil).text("protocol"); got != "1.0" {
			t.Fatalf("%s: protocol %q", c.agent, got)
		}
		c.ok("register", nil)
	}
	interopPeers(t, alpha)
	interopSend(t, b, alpha, beta, body)
	interopReceipts(t, alpha, beta)
	interopLeases(t, alpha, beta)
	interopHistory(t, alpha, beta)
	interopRefusals(t, b, alpha)
}

func interopPeers(t *testing.T, c *oldClient) {
	t.Helper()
	var names []string
	for _, p := range c.ok("peers", nil).list("peers") {
		names = append(names, p.text("agent"))
		if p["online"] != true || p["lastSeen"].(float64) <= 0 {
			t.Errorf("peer %v, want it online", p)
		}
	}
	if diff := cmp.Diff([]string{"alpha", "beta"}, names); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
}

// oddID holds most of what an id may, none of which the clients escape.
const oddID = "job/7+a=b:(c)!~@$&*,;.d'/x"

func interopSend(t *testing.T, b *interopBroker, alpha, beta *oldClient, body string) {
	t.Helper()
	want := jsonValue(t, body)
	send := jsonObject{"to": "beta", "id": oddID, "body": json.RawMessage(body)}
	sent := alpha.ok("send", send)
	if sent["accepted"] != true || sent["duplicate"] != false || sent["id"] != oddID || sent.object("recipient")["online"] != true {
		t.Errorf("send answers %v", sent)
	}
	if again := alpha.ok("send", send); again["duplicate"] != true {
		t.Errorf("the same message again answers %v, want a duplicate", again)
	}
	page := beta.ok("poll", nil)
	got := page.list("messages")
	if len(got) != 1 || got[0]["id"] != oddID || got[0]["status"] != "queued" {
		t.Fatalf("beta's inbox: %v", got)
	}
	if diff := cmp.Diff(want, got[0]["body"]); diff != "" {
		t.Errorf("body (-sent +got):\n%s", diff)
	}
	if raw := b.call(t, "beta", http.MethodGet, "/messages", ""); !strings.Contains(raw, `"body":`+body+`,"replyTo"`) {
		t.Errorf("the body did not come back byte for byte:\n%s", raw)
	}
	// The cursor stays where it was while there is nothing new.
	for range 2 {
		if page := beta.ok("poll", jsonObject{"limit": "5"}); len(page.list("messages")) != 0 || page["reset"] != nil {
			t.Errorf("a poll with nothing new answers %v", page)
		}
	}
	alpha.ok("send", jsonObject{"to": "beta", "id": "second", "body": "text"})
	if got := messageIDs(beta.ok("poll", nil).list("messages")); !cmp.Equal(got, []string{"second"}) {
		t.Errorf("after the cursor: %v, want second alone", got)
	}
}

func interopReceipts(t *testing.T, alpha, beta *oldClient) {
	t.Helper()
	first := beta.ok("ack", jsonObject{"id": oddID})
	if again := beta.ok("ack", jsonObject{"id": oddID, "status": "error", "error": "late"}); again["id"] != first["id"] {
		t.Errorf("acked again: receipt %v, want %v", again["id"], first["id"])
	}
	beta.ok("ack", jsonObject{"id": "second", "status": "error", "error": "no such task: ✗"})
	receipts := alpha.ok("poll", nil).list("messages")
	var got []jsonObject
	for _, m := range receipts {
		got = append(got, jsonObject{"type": m["type"], "from": m["from"], "replyTo": m["replyTo"], "body": m["body"]})
	}
	want := []jsonObject{
		{"type": "ack", "from": "beta", "replyTo": oddID, "body": map[string]any{"status": "ok"}},
		{"type": "ack", "from": "beta", "replyTo": "second", "body": map[string]any{"status": "error", "error": "no such task: ✗"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	alpha.refused("ack", jsonObject{"id": receipts[0].text("id")}, http.StatusBadRequest, agentrelay.CodeBadRequest)
}

func interopLeases(t *testing.T, alpha, beta *oldClient) {
	t.Helper()
	alpha.ok("send", jsonObject{"to": "beta", "id": "task/1", "kind": "request", "ack": true, "body": jsonObject{"n": 1}})
	alpha.ok("send", jsonObject{"to": "beta", "id": "task/2", "kind": "request", "body": nil})
	pulled := beta.ok("pull", jsonObject{"limit": "1", "lease_seconds": "60"})
	if got := messageIDs(pulled.list("messages")); !cmp.Equal(got, []string{"task/1"}) || pulled["count"] != 1.0 {
		t.Fatalf("pull of one answers %v", pulled)
	}
	lease := pulled.list("messages")[0]
	if lease["status"] != "leased" || lease.text("leaseId") == "" {
		t.Errorf("pulled %v, want it leased", lease)
	}
	renewed := beta.ok("renew", jsonObject{"id": "task/1", "lease_id": lease["leaseId"], "lease_seconds": 3600})
	if renewed["leaseUntil"].(float64) <= lease["leaseUntil"].(float64) {
		t.Errorf("renewed until %v, was %v", renewed["leaseUntil"], lease["leaseUntil"])
	}
	settle := jsonObject{"id": "task/1", "lease_id": lease["leaseId"], "outcome": "retry", "error": "try later"}
	for range 2 {
		if got := beta.ok("settle", settle); !cmp.Equal(got, jsonObject{"ok": true, "status": "queued", "attempts": 1.0}) {
			t.Errorf("retry answers %v", got)
		}
	}
	// Without a limit, the Node client sends null.
	pulled = beta.ok("pull", nil)
	if got := messageIDs(pulled.list("messages")); !cmp.Equal(got, []string{"task/2", "task/1"}) {
		t.Fatalf("pull of all: %v, want task/2 and then task/1, which was queued again", got)
	}
	lease = pulled.list("messages")[1]
	if lease["error"] != "try later" || lease["attempts"] != 1.0 {
		t.Errorf("pulled again: %v", lease)
	}
	// A stale lease is a conflict. The Python client takes that for success.
	stale := jsonObject{"id": "task/1", "lease_id": settle["lease_id"], "outcome": "completed"}
	beta.conflict("settle", stale, agentrelay.CodeLeaseMismatch)
	done := jsonObject{"id": "task/1", "lease_id": lease["leaseId"], "outcome": "completed"}
	for range 2 {
		if got := beta.ok("settle", done); !cmp.Equal(got, jsonObject{"ok": true, "status": "done", "attempts": 1.0}) {
			t.Errorf("completed answers %v", got)
		}
	}
	beta.conflict("renew", jsonObject{"id": "task/1", "lease_id": lease["leaseId"]}, agentrelay.CodeNotLeased)
	receipt := alpha.ok("poll", nil).list("messages")
	if len(receipt) != 1 || receipt[0]["replyTo"] != "task/1" || receipt[0]["type"] != "ack" {
		t.Errorf("receipt of a completed lease: %v", receipt)
	}
}

func interopHistory(t *testing.T, alpha, beta *oldClient) {
	t.Helper()
	var got []jsonObject
	for _, m := range alpha.ok("status", jsonObject{"ids": []string{oddID, "second", "task/1", "task/2", "unknown"}}).list("messages") {
		got = append(got, jsonObject{"id": m["id"], "status": m["status"], "attempts": m["attempts"]})
	}
	want := []jsonObject{
		{"id": oddID, "status": "done", "attempts": 0.0},
		{"id": "second", "status": "failed", "attempts": 0.0},
		{"id": "task/1", "status": "done", "attempts": 1.0},
		{"id": "task/2", "status": "leased", "attempts": 0.0},
		{"id": "unknown", "status": "not_found", "attempts": 0.0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got := messageIDs(beta.ok("recent", nil).list("messages")); !cmp.Equal(got, []string{"task/2", "task/1", "second", oddID}) {
		t.Errorf("recent: %v, want the inbox with the newest first", got)
	}
	if got := messageIDs(beta.ok("recent", jsonObject{"limit": "2"}).list("messages")); !cmp.Equal(got, []string{"task/2", "task/1"}) {
		t.Errorf("recent of two: %v", got)
	}
	found := beta.ok("query", jsonObject{"kind": "request", "status": "done", "from": "alpha"})
	if got := messageIDs(found.list("messages")); !cmp.Equal(got, []string{"task/1"}) || found["count"] != 1.0 {
		t.Errorf("query: %v", found)
	}
}

func interopRefusals(t *testing.T, b *interopBroker, alpha *oldClient) {
	t.Helper()
	e := alpha.refused("send", jsonObject{"to": "Beta", "body": 1}, http.StatusNotFound, agentrelay.CodeNoSuchAgent)
	if !cmp.Equal(e["suggestions"], []any{"beta"}) {
		t.Errorf("suggestions %v, want beta", e["suggestions"])
	}
	// What the Python client took for success would be lost: no 409 here.
	alpha.refused("send", jsonObject{"to": "beta", "id": oddID, "body": "other"}, http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	alpha.refused("send", jsonObject{"to": "alpha", "body": 1}, http.StatusBadRequest, agentrelay.CodeBadRequest)
	alpha.refused("ack", jsonObject{"id": "unknown/1"}, http.StatusNotFound, agentrelay.CodeNoSuchMessage)
	alpha.refused("ack", jsonObject{"id": "task/2"}, http.StatusForbidden, agentrelay.CodeForbidden)

	stranger := alpha.start(t, b.url, "alpha", strings.Repeat("0", 64))
	stranger.ok("handshake", nil)
	e = stranger.refused("register", nil, http.StatusUnauthorized, agentrelay.CodeUnauthenticated)
	if e["reason"] != string(agentrelay.ReasonBadSignature) {
		t.Errorf("reason %v", e["reason"])
	}
}

// TestInteropRestart has the answer to a send lost with the broker that gave
// it: the client sends again, to its successor.
func TestInteropRestart(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, url, agent string) *oldClient{"python": startPython, "node": startNode} {
		t.Run(name, func(t *testing.T) {
			b := startInteropBroker(t)
			g := newGate(t, b.url)
			alpha, beta := start(t, g.url, "alpha"), start(t, g.url, "beta")
			alpha.ok("register", nil)
			beta.ok("register", nil)
			alpha.ok("send", jsonObject{"to": "beta", "id": "before", "body": 1})
			if got := messageIDs(beta.ok("poll", nil).list("messages")); !cmp.Equal(got, []string{"before"}) {
				t.Fatalf("before the restart: %v", got)
			}
			g.loseNext(func() (string, error) {
				err := b.restart()
				return b.url, err
			})
			if sent := alpha.ok("send", jsonObject{"to": "beta", "id": "across", "body": 2}); sent["duplicate"] != true {
				t.Errorf("the second try answers %v, want a duplicate: the first one was stored", sent)
			}
			// Registry and cursors are from before.
			if got := messageIDs(beta.ok("poll", nil).list("messages")); !cmp.Equal(got, []string{"across"}) {
				t.Errorf("after the restart: %v, want the one new message once", got)
			}
			if got := messageIDs(beta.ok("recent", nil).list("messages")); !cmp.Equal(got, []string{"across", "before"}) {
				t.Errorf("beta's inbox: %v", got)
			}
			// A broker that is away altogether: tried again, then reported.
			g.close()
			if failed := alpha.call("peers", nil); failed.OK || failed.Status != 0 {
				t.Errorf("without a broker: %+v", failed)
			}
		})
	}
}

// TestInteropNodeCommandLine makes calls as the command line does, a process
// each, where a limit is text or missing altogether.
func TestInteropNodeCommandLine(t *testing.T) {
	b := startInteropBroker(t)
	node := findPeer(t, nodeWorks)
	command := func(agent string, args ...string) jsonObject {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), node, append([]string{clientPath(t, "node/relay-client.mjs")}, args...)...)
		cmd.Env = clientEnv(b.url, agent, interopSecret)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return readAnswer(t, out).Result
	}
	b.call(t, "beta", http.MethodPost, "/register", "")
	for _, id := range []string{"1", "2"} {
		command("alpha", "send", "--to", "beta", "--id", id, "--body", `{"n":`+id+`}`)
	}
	if got := messageIDs(command("beta", "poll").list("messages")); !cmp.Equal(got, []string{"1", "2"}) {
		t.Errorf("poll: %v", got)
	}
	if got := messageIDs(command("beta", "recent", "--limit", "1").list("messages")); !cmp.Equal(got, []string{"2"}) {
		t.Errorf("recent of one: %v", got)
	}
}

// TestInteropHandshake shows that the clients refuse brokers of another
// protocol, so that the handshakes of the other tests mean something.
func TestInteropHandshake(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(agentrelay.HeaderSignature) == "" {
			t.Error("the client sent no signature with the handshake")
		}
		_, _ = io.WriteString(w, `{"protocol":"2.0"}`)
	}))
	defer other.Close()
	for name, start := range map[string]func(t *testing.T, url, agent string) *oldClient{"python": startPython, "node": startNode} {
		t.Run(name, func(t *testing.T) {
			if got := start(t, other.URL, "alpha").call("handshake", nil); got.OK {
				t.Errorf("the client accepts protocol 2.0: %+v", got)
			}
		})
	}
}

// TestInteropReadme runs the programs in other languages that README.md shows.
func TestInteropReadme(t *testing.T) {
	python := findPeer(t, pythonWorks)
	for _, tool := range []string{"sh", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			cannotRun(t, "README.md's shell example cannot run here: %v", err)
		}
	}
	b := startInteropBroker(t)
	program := func(language string) string {
		return readmeBlocks(t, "From a program", language)[0]
	}
	runProgram := func(name, flag, text string) string {
		cmd := exec.CommandContext(t.Context(), name, flag, text)
		cmd.Env = append(clientEnv(b.url, "", ""), "AGENT_RELAY_URL="+b.url, "AGENT_RELAY_SECRET="+interopSecret)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	b.call(t, "gamma", http.MethodPost, "/register", "")
	if got := runProgram("sh", "-c", program("sh")); !strings.HasPrefix(got, `{"accepted":true,`) {
		t.Errorf("the shell example prints %q", got)
	}
	if got := strings.TrimSpace(runProgram(python, "-c", program("python"))); got != "alpha {'text': 'hello from curl'}" {
		t.Errorf("the Python example prints %q", got)
	}
	if got := b.call(t, "alpha", http.MethodGet, "/messages", ""); !strings.Contains(got, `"type":"ack"`) {
		t.Errorf("alpha got no receipt: %s", got)
	}
}
