package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// A request that breaks two rules is told of the one that is checked first.
func TestOrderOfChecks(t *testing.T) {
	r := newRelay(t, setup{perAgent: 20})
	for _, name := range []string{"ann", "ben"} {
		r.agent(name)
	}
	for range 5 {
		r.do(call{agent: "eve", target: "/peers", signature: "00"})
	}
	for r.do(call{agent: "tired", target: "/peers"}).status != http.StatusTooManyRequests {
	}
	origin := []string{"Origin: null"}
	for _, c := range []struct {
		name   string
		call   call
		code   agentrelay.Code
		reason agentrelay.Reason
	}{
		{"request line before Host", call{method: "OPTIONS", target: "*", host: "relay.example"}, "bad_request", ""},
		{"authority form before Host", call{method: "CONNECT", target: "relay.example:80", host: "relay.example:80"}, "bad_request", ""},
		{"Host before Origin", call{target: "/peers", host: "relay.example", header: origin}, "misdirected", ""},
		{"Origin before size", call{method: "POST", target: "/messages", header: origin, length: maxBody + 1}, "origin_refused", ""},
		{"size before headers", call{method: "POST", target: "/messages", unsigned: true, length: maxBody + 1}, "body_too_large", ""},
		{"headers before name", call{agent: "no name", target: "/peers", unsigned: true, header: []string{"X-Relay-Agent: no name"}}, "unauthenticated", "missing_headers"},
		{"name before timestamp", call{agent: "no name", target: "/peers", timestamp: "never"}, "unauthenticated", "bad_agent_name"},
		{"lock before timestamp", call{agent: "eve", target: "/peers", timestamp: "never"}, "locked", ""},
		{"lock before signature", call{agent: "eve", target: "/peers", signature: "00"}, "locked", ""},
		{"timestamp before signature", call{agent: "ann", target: "/peers", timestamp: "never", signature: "00"}, "unauthenticated", "bad_timestamp"},
		{"body before signature", chunked(call{agent: "ann", method: "POST", target: "/messages", signature: "00"}, strings.Repeat("x", maxBody+1)), "body_too_large", ""},
		{"signature before skew", call{agent: "ann", target: "/peers", timestamp: "1", signature: "00"}, "unauthenticated", "bad_signature"},
		{"skew before rate", call{agent: "tired", target: "/peers", timestamp: "1"}, "unauthenticated", "timestamp_skew"},
		{"rate before route", call{agent: "tired", target: "/nowhere"}, "rate_limited", ""},
		{"rate before method", call{agent: "tired", method: "PUT", target: "/peers"}, "rate_limited", ""},
		{"route before JSON", call{agent: "ann", method: "POST", target: "/nowhere", body: `{`}, "not_found", ""},
		{"method before JSON", call{agent: "ann", method: "PUT", target: "/messages", body: `{`}, "method_not_allowed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := r.dial()
			conn.t = t
			conn.send(r.render(c.call))
			f := conn.receive(c.call.method).wantError(statuses[c.code], c.code)
			if f.Reason != string(c.reason) {
				t.Errorf("the reason is %q, want %q", f.Reason, c.reason)
			}
		})
	}
}

// What needs no body is answered while the body is yet to come.
func TestChecksBeforeTheBody(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	for range 5 {
		r.do(call{agent: "eve", target: "/peers", signature: "00"})
	}
	for name, c := range map[string]struct {
		call   call
		status int
	}{
		"Host":      {call{agent: "ann", host: "relay.example"}, http.StatusMisdirectedRequest},
		"Origin":    {call{agent: "ann", header: []string{"Origin: x"}}, http.StatusForbidden},
		"headers":   {call{unsigned: true}, http.StatusUnauthorized},
		"name":      {call{agent: "no name"}, http.StatusUnauthorized},
		"lock":      {call{agent: "eve"}, http.StatusForbidden},
		"timestamp": {call{agent: "ann", timestamp: "never"}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			c.call.method, c.call.target, c.call.length = http.MethodPost, "/messages", 1000
			conn := r.dial()
			conn.t = t
			conn.send(r.render(c.call))
			if a := conn.receive(http.MethodPost); a.status != c.status {
				t.Errorf("got %d %s, want %d", a.status, a.body, c.status)
			}
		})
	}
}

func TestPublicRoutesIgnoreAuthentication(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	for _, target := range []string{"/", "/?x=1", "/healthz", "/metrics"} {
		for _, c := range []call{
			{unsigned: true},
			{agent: "no name"},
			{agent: "ann", timestamp: "never"},
			{agent: "ann", timestamp: "1"},
			{agent: "ann", body: "a body"},
		} {
			c.target = target
			r.do(c).want(http.StatusOK, nil)
		}
		for range 6 {
			r.do(call{agent: "ann", target: target, signature: "00"}).want(http.StatusOK, nil)
		}
	}
	r.do(call{agent: "ann", target: "/peers"}).want(http.StatusOK, nil) // bad ones above did not count
}

func TestUnknownRouteNeedsASignature(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	for _, target := range []string{"/nowhere", "//", "//peers", "/peers/", "/messages/", "/messages/ack", "/messages/x", "/v1", "/v1/", "/metrics/", "/PEERS", "/healthz/", "/.."} {
		r.do(call{target: target, unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
		r.do(call{agent: "ann", target: target}).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
	}
}

func TestHead(t *testing.T) {
	r := newRelay(t, setup{})
	for _, target := range []string{"/", "/healthz"} {
		got := r.do(call{target: target, unsigned: true})
		head := r.do(call{method: http.MethodHead, target: target, unsigned: true})
		if head.status != http.StatusOK || head.body != "" {
			t.Errorf("HEAD %s is %d %q, want 200 and nothing", target, head.status, head.body)
		}
		if want := got.header.Get("Content-Length"); head.header.Get("Content-Length") != want || want == "" {
			t.Errorf("HEAD %s says Content-Length %q, GET %q", target, head.header.Get("Content-Length"), want)
		}
		head.wantHeaders()
	}
	if a := r.do(call{method: http.MethodHead, target: "/peers", unsigned: true}); a.status != http.StatusUnauthorized {
		t.Errorf("HEAD /peers without a signature is %d", a.status)
	}
}

func TestMethods(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	r.do(call{method: "POST", target: "/", unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
	for _, c := range []struct{ method, target, allow string }{
		{"POST", "/", "GET, HEAD"},
		{"DELETE", "/healthz", "GET, HEAD"},
		{"GET", "/register", "POST"},
		{"POST", "/peers", "GET"},
		{"DELETE", "/messages", "GET, POST"},
		{"GET", "/messages/m/ack", "POST"},
		{"GET", "/v1/pull", "POST"},
		{"GET", "/v1/ack", "POST"},
		{"GET", "/v1/lease/renew", "POST"},
		{"GET", "/v1/status", "POST"},
		{"GET", "/v1/recent", "POST"},
		{"GET", "/v1/messages/query", "POST"},
		{"get", "/peers", "GET"},
		{"BREW", "/peers", "GET"},
	} {
		a := r.do(call{agent: "ann", method: c.method, target: c.target})
		a.wantError(http.StatusMethodNotAllowed, agentrelay.CodeMethodNotAllowed)
		if got := a.header.Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.target, got, c.allow)
		}
	}
}

func TestInfo(t *testing.T) {
	r := newRelay(t, setup{})
	a := r.do(call{target: "/", unsigned: true})
	a.wantBody(http.StatusOK, `{"protocol":"1.0","broker":"agent-relay","version":"1.2.3-test",`+
		`"capabilities":{"leaseDelivery":true,"requestReply":true,"filteredQuery":true,"sqlitePersistence":true,"longPoll":true,`+
		`"leaseRenewal":true,"signedResponses":true,"singleUseTimestamps":true},"storage":"sqlite"}`)
	a.wantHeaders()
}

// An unparsable request gets net/http's own 400, and the broker lives on.
func TestUnparsableRequests(t *testing.T) {
	r := newRelay(t, setup{})
	for _, raw := range []string{
		"nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
	} {
		c := r.dial()
		c.send([]byte(raw))
		if a := c.receive(http.MethodGet); a.status < 400 || a.status >= 600 {
			t.Errorf("%q is answered with %d", raw, a.status)
		}
	}
	// A request of HTTP/1.0 names no host, which this broker insists on.
	c := r.dial()
	c.send([]byte("GET / HTTP/1.0\r\n\r\n"))
	c.receive(http.MethodGet).wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
	r.do(call{target: "/", unsigned: true}).want(http.StatusOK, nil)
}
