package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// fractional is a timestamp that is good once.
func (r *relay) fractional() string {
	now := r.clock.Now()
	return fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())
}

// once signs a call so that it is good once, and shows the signature.
func (r *relay) once(c call) call {
	c.timestamp = r.fractional()
	return r.complete(c)
}

// A request that was answered is not answered again, whatever it was.
func TestReplays(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1", "m2", "m3")
	work := ben.pull(`{"limit":1}`)
	for name, c := range map[string]call{
		"poll":   {target: "/messages"},
		"pull":   {method: http.MethodPost, target: "/v1/pull", body: `{"limit":1}`},
		"ack":    {method: http.MethodPost, target: "/messages/m3/ack"},
		"settle": {method: http.MethodPost, target: "/v1/ack", body: fmt.Sprintf(`{"messageId":"m1","leaseId":%q,"outcome":"retry"}`, *work[0].LeaseID)},
		"send":   {method: http.MethodPost, target: "/messages", body: `{"to":"ann","body":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			c.agent = "ben"
			c = r.once(c)
			if first := r.do(c); first.status >= 300 {
				t.Fatalf("the first: %d %s", first.status, first.body)
			}
			inboxes := ann.get("/messages").body + ben.post("/v1/recent", `{}`).body
			replayed := func(c call) {
				t.Helper()
				f := r.do(c).wantReason(agentrelay.ReasonReplayed)
				if f.ServerTime == nil || f.SkewSeconds == nil {
					t.Errorf("it does not tell the time: %+v", f)
				}
			}
			replayed(c)
			// The agent's name is not under the signature.
			other := c
			other.agent = "ann"
			replayed(other)
			loud := c
			loud.signature = strings.ToUpper(c.signature)
			r.do(loud).wantReason(agentrelay.ReasonBadSignature)
			if after := ann.get("/messages").body + ben.post("/v1/recent", `{}`).body; after != inboxes {
				t.Errorf("a replay changed\n%s\nto\n%s", inboxes, after)
			}
			r.clock.Advance(time.Millisecond) // to another timestamp
		})
	}
}

// Nor is it after a restart.
func TestReplayAcrossARestart(t *testing.T) {
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	r.agent("ann")
	c := r.once(call{agent: "ann", target: "/messages"})
	r.do(c).want(http.StatusOK, nil)
	s.clock = r.clock
	r.stop()
	s.clock.Advance(time.Millisecond)
	r = newRelay(t, s)
	f := r.do(c).wantReason(agentrelay.ReasonBeforeStart)
	if f.ServerTime == nil || f.SkewSeconds == nil || f.SkewSeconds.String() != "-0.001" {
		t.Errorf("it does not tell the time: %+v", f)
	}
	r.do(r.once(call{agent: "ann", target: "/messages"})).want(http.StatusOK, nil)
}

// Two equal requests within a second are what clients with whole seconds make,
// unless the broker is told not to take them.
func TestWholeSeconds(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	for range 2 {
		r.do(call{agent: "ann", target: "/messages"}).want(http.StatusOK, nil)
	}
	strict := newRelay(t, setup{requireSingleUse: true})
	f := strict.do(call{agent: "ann", target: "/peers"}).wantReason(agentrelay.ReasonSingleUseRequired)
	if f.ServerTime == nil || f.SkewSeconds == nil {
		t.Errorf("it does not tell the time: %+v", f)
	}
	strict.do(strict.once(call{agent: "ann", target: "/peers"})).want(http.StatusOK, nil)
}

// An answer is signed as soon as the request was verified.
func TestSignedErrors(t *testing.T) {
	r := newRelay(t, setup{perAgent: 40})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1")
	used := r.once(call{agent: "ann", target: "/peers"})
	r.do(used).want(http.StatusOK, nil)
	for name, c := range map[string]struct {
		call   call
		status int
		signed bool
	}{
		"no route":    {call{target: "/nowhere"}, 404, true},
		"method":      {call{method: "PUT", target: "/peers"}, 405, true},
		"HEAD":        {call{method: "HEAD", target: "/peers"}, 405, true},
		"no object":   {call{method: "POST", target: "/messages", body: "[]"}, 400, true},
		"nobody":      {call{method: "POST", target: "/messages", body: `{"to":"zoe","body":1}`}, 404, true},
		"conflict":    {call{method: "POST", target: "/messages", body: `{"to":"ben","id":"m1","body":1}`}, 422, true},
		"foreign":     {call{method: "POST", target: "/messages/m1/ack"}, 403, true},
		"not leased":  {call{agent: "ben", method: "POST", target: "/v1/ack", body: `{"messageId":"m1","leaseId":"x","outcome":"retry"}`}, 409, true},
		"clock":       {call{target: "/peers", timestamp: "1"}, 401, true},
		"replayed":    {used, 401, true},
		"success":     {call{target: "/peers"}, 200, true},
		"bad secret":  {call{target: "/peers", secret: "wrong"}, 401, false},
		"no headers":  {call{target: "/peers", unsigned: true}, 401, false},
		"bad time":    {call{target: "/peers", timestamp: "now"}, 401, false},
		"a page":      {call{target: "/peers", header: []string{"Origin: http://a"}}, 403, false},
		"wrong host":  {call{target: "/peers", host: "example.com"}, 421, false},
		"public":      {call{target: "/"}, 200, false},
		"public HEAD": {call{method: "HEAD", target: "/healthz"}, 200, false},
	} {
		if c.call.agent == "" {
			c.call.agent = "ann"
		}
		a := r.do(c.call) // which verifies the signature
		if signed := a.header.Get(agentrelay.HeaderSignature) != ""; a.status != c.status || signed != c.signed {
			t.Errorf("%s: %d %s, signed %v", name, a.status, a.body, signed)
		}
	}
	for range 40 {
		if a := r.do(call{agent: "ann", target: "/peers"}); a.status == http.StatusTooManyRequests {
			if a.header.Get(agentrelay.HeaderSignature) == "" {
				t.Error("the refusal over the rate limit is not signed")
			}
			return
		}
	}
	t.Error("no rate limit was met")
}
