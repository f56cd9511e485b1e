package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// statuses is the protocol's table of errors.
var statuses = map[agentrelay.Code]int{
	"bad_request": 400, "unauthenticated": 401, "unknown_agent": 401, "locked": 403, "forbidden": 403, "origin_refused": 403,
	"no_such_agent": 404, "no_such_message": 404, "not_found": 404, "method_not_allowed": 405,
	"not_leased": 409, "lease_mismatch": 409, "body_too_large": 413, "misdirected": 421,
	"id_conflict": 422, "hook_rejected": 422, "rate_limited": 429, "queue_full": 429, "busy": 503, "storage_full": 507,
}

// Each code has a status, stands in PROTOCOL.md, and reaches a client as the
// error that it is.
func TestEveryCodeCrossesTheWire(t *testing.T) {
	protocol, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.agent("B.E.N")
	c, err := client.New(client.Options{URL: "http://" + r.addr, Agent: "ann", Secret: secret, Now: r.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Shorter than Retry-After, so that no call is tried again.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if len(agentrelay.Codes()) != len(statuses) {
		t.Errorf("there are %d codes, and this test knows %d", len(agentrelay.Codes()), len(statuses))
	}
	for _, code := range agentrelay.Codes() {
		if !strings.Contains(string(protocol), "`"+string(code)+"`") {
			t.Errorf("PROTOCOL.md does not name `%s`", code)
		}
		full := &agentrelay.Error{
			Code: code, Message: "what to do about " + string(code), Err: errors.New("the private cause"),
			Reason: "the_reason", RetryAfter: 119500 * time.Millisecond,
			ServerTime: start, Skew: -301500 * time.Millisecond,
		}
		r.store.set(func(s *spy) { s.failEnqueue = full })
		a := ann.post("/messages", `{"to":"ben"}`)
		a.wantError(statuses[code], code)
		if strings.Contains(a.body, "private") {
			t.Errorf("%s: the answer tells the private cause: %s", code, a.body)
		}
		if got := a.header.Get("Retry-After"); got != "120" {
			t.Errorf("%s: Retry-After is %q, want whole seconds, rounded up", code, got)
		}
		_, err := c.Send(ctx, client.Outgoing{To: "ben"})
		want := *full
		want.Err, want.RetryAfter = nil, 2*time.Minute
		if code == agentrelay.CodeNoSuchAgent {
			want.Message += `; did you mean "B.E.N"?`
			want.Suggestions = []string{"B.E.N"}
		}
		var got *agentrelay.Error
		if !errors.As(err, &got) || !errors.Is(err, &agentrelay.Error{Code: code}) {
			t.Errorf("%s: the client returns %v", code, err)
			continue
		}
		got.ServerTime = got.ServerTime.Round(time.Millisecond).UTC()
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s changed on the way (-sent +received):\n%s", code, diff)
		}
	}
}

// What is no error of the protocol is busy, and its text stays in the broker.
func TestInternalFaultIsBusy(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.store.set(func(s *spy) { s.failEnqueue = errors.New("secret detail of /var/lib") })
	a := ann.post("/messages", `{"to":"ben","body":"content"}`)
	a.wantError(http.StatusServiceUnavailable, agentrelay.CodeBusy)
	if strings.Contains(a.body, "detail") || strings.Contains(a.body, "content") {
		t.Errorf("the answer tells too much: %s", a.body)
	}
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After is %q, want 1", got)
	}
}

// errorCase brings an error about.
type errorCase struct {
	name string
	call call
	code agentrelay.Code
	// members beside code and message, and headers.
	members []string
	header  map[string]string
}

// Each row of the table, brought about as a client would.
func TestErrorTable(t *testing.T) {
	r := newRelay(t, setup{targets: map[string][]string{"tom": {"ben"}}})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("team-lead")
	r.agent("tom")
	r.must(r.broker.RevokeKey(t.Context(), "keyless", r.addKeyed("keyless").ID))
	ann.send(ben, "m1", "m2", "leased")
	for range 5 {
		r.do(call{agent: "eve", target: "/peers", signature: "00"})
	}
	ben.pull(`{}`)
	ann.send(ben, "queued")
	post := func(agent, target, body string) call {
		return call{agent: agent, method: http.MethodPost, target: target, body: body}
	}
	settle := `,"leaseId":"x","outcome":"completed"}`
	for _, c := range []errorCase{
		{"malformed", post("ann", "/messages", `{`), "bad_request", nil, nil},
		{"bad signature", call{agent: "ann", target: "/peers", signature: "00"}, "unauthenticated", []string{"reason"}, nil},
		{"skew", call{agent: "ann", target: "/peers", timestamp: "1"}, "unauthenticated", []string{"reason", "serverTime", "skewSeconds"}, nil},
		{"unknown agent", call{agent: "keyless", target: "/peers"}, "unknown_agent", nil, nil},
		{"locked", call{agent: "eve", target: "/peers"}, "locked", nil, map[string]string{"Retry-After": "300"}},
		{"acl", post("tom", "/messages", `{"to":"ann"}`), "forbidden", nil, nil},
		{"foreign ack", post("ann", "/messages/m1/ack", ``), "forbidden", nil, nil},
		{"foreign settle", post(zoe.name, "/v1/ack", `{"messageId":"m1"`+settle), "forbidden", nil, nil},
		{"origin", call{agent: "ann", target: "/peers", header: []string{"Origin: http://localhost"}}, "origin_refused", nil, nil},
		{"recipient", post("ann", "/messages", `{"to":"team_lead"}`), "no_such_agent", []string{"suggestions"}, nil},
		{"unknown message", post("ann", "/messages/none/ack", ``), "no_such_message", nil, nil},
		{"unknown message to settle", post("ann", "/v1/ack", `{"messageId":"none"`+settle), "no_such_message", nil, nil},
		{"unknown message to renew", post("ann", "/v1/lease/renew", `{"messageId":"none","leaseId":"x"}`), "no_such_message", nil, nil},
		{"route", call{agent: "ann", target: "/nowhere"}, "not_found", nil, nil},
		{"method", call{agent: "ann", method: http.MethodPut, target: "/messages"}, "method_not_allowed", nil, map[string]string{"Allow": "GET, POST"}},
		{"not leased", post("ben", "/v1/ack", `{"messageId":"queued"`+settle), "not_leased", nil, nil},
		{"renew what is not leased", post("ben", "/v1/lease/renew", `{"messageId":"queued","leaseId":"x"}`), "not_leased", nil, nil},
		{"mismatch", post("ben", "/v1/ack", `{"messageId":"leased"`+settle), "lease_mismatch", nil, nil},
		{"renew a mismatch", post("ben", "/v1/lease/renew", `{"messageId":"leased","leaseId":"x"}`), "lease_mismatch", nil, nil},
		{"too large", call{agent: "ann", method: http.MethodPost, target: "/messages", length: maxBody + 1}, "body_too_large", nil, nil},
		{"misdirected", call{agent: "ann", target: "/peers", host: "relay.example"}, "misdirected", nil, nil},
		{"conflict", post("ann", "/messages", `{"to":"ben","id":"m1","body":"another"}`), "id_conflict", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial()
			conn.t = t
			conn.send(r.render(c.call))
			a := conn.receive(c.call.method)
			a.wantError(statuses[c.code], c.code)
			var wire struct{ Error map[string]json.RawMessage }
			a.want(statuses[c.code], &wire)
			for _, name := range append([]string{"code", "message"}, c.members...) {
				if _, ok := wire.Error[name]; !ok {
					t.Errorf("the error has no member %s: %s", name, a.body)
				}
				delete(wire.Error, name)
			}
			if len(wire.Error) > 0 {
				t.Errorf("the error has more members: %v", wire.Error)
			}
			for _, name := range []string{"Allow", "Retry-After"} {
				if got := a.header.Get(name); got != c.header[name] {
					t.Errorf("%s is %q, want %q", name, got, c.header[name])
				}
			}
		})
	}
}

// A disk that is full refuses what is new; the answer is not to be mistaken
// for a passing fault.
func TestStorageFull(t *testing.T) {
	var log syncBuffer
	r := newRelay(t, setup{log: slog.NewTextHandler(&log, nil)})
	ann, ben := r.agent("ann"), r.agent("ben")
	r.store.set(func(s *spy) {
		s.failEnqueue = &agentrelay.Error{Code: agentrelay.CodeStorageFull, Message: "the disk is full", Err: errors.New("no space")}
	})
	for range 5 {
		ann.post("/messages", `{"to":"ben"}`).wantError(http.StatusInsufficientStorage, agentrelay.CodeStorageFull)
	}
	if n := strings.Count(log.String(), "no space"); n != 1 {
		t.Errorf("5 refusals within a minute are logged %d times, want once", n)
	}
	r.store.set(func(s *spy) { s.failEnqueue = nil })
	ann.send(ben, "later")
}

// syncBuffer is a buffer for several at once.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
