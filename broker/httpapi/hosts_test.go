package httpapi_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// everyRoute is a good request to each route, as ann.
var everyRoute = []call{
	{method: http.MethodGet, target: "/", unsigned: true},
	{method: http.MethodHead, target: "/", unsigned: true},
	{method: http.MethodGet, target: "/healthz", unsigned: true},
	{method: http.MethodGet, target: "/metrics", unsigned: true},
	{method: http.MethodPost, target: "/register", body: `{"agent":"ann"}`},
	{method: http.MethodGet, target: "/peers"},
	{method: http.MethodPost, target: "/messages", body: `{"to":"ben"}`},
	{method: http.MethodGet, target: "/messages?since="},
	{method: http.MethodPost, target: "/messages/m/ack", body: `{"status":"ok"}`},
	{method: http.MethodPost, target: "/v1/pull", body: `{"limit":1}`},
	{method: http.MethodPost, target: "/v1/ack", body: `{"messageId":"m","leaseId":"l","outcome":"completed"}`},
	{method: http.MethodPost, target: "/v1/lease/renew", body: `{"messageId":"m","leaseId":"l"}`},
	{method: http.MethodPost, target: "/v1/status", body: `{"messageIds":["m"]}`},
	{method: http.MethodPost, target: "/v1/recent", body: `{"limit":1}`},
	{method: http.MethodPost, target: "/v1/messages/query", body: `{"limit":1}`},
	{method: http.MethodGet, target: "/nowhere"},
}

// What a browser sends for a page, and what is meant for another host, is
// refused on every route; without it the same request is let in.
func TestForeignRequestsOnEveryRoute(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	r.agent("ben")
	for _, c := range everyRoute {
		c.agent = "ann"
		if a := r.do(c); a.status == http.StatusMisdirectedRequest || a.status == http.StatusForbidden || a.status >= 500 {
			t.Errorf("%s %s is %d %s", c.method, c.target, a.status, a.body)
		}
		foreign := c
		foreign.host = "rebound.example:19121"
		if a := r.do(foreign); a.status != http.StatusMisdirectedRequest {
			t.Errorf("%s %s for another host is %d", c.method, c.target, a.status)
		}
		for _, line := range []string{
			"Origin: http://127.0.0.1:19121", "Origin: null", "Origin:", "origin: https://page.example",
			"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: same-site", "sec-fetch-site: NONE",
		} {
			page := c
			page.header = []string{line}
			if a := r.do(page); a.status != http.StatusForbidden {
				t.Errorf("%s %s with %q is %d", c.method, c.target, line, a.status)
			}
		}
		typed := c
		typed.header = []string{"Sec-Fetch-Site: none"}
		if a := r.do(typed); a.status == http.StatusForbidden {
			t.Errorf("%s %s with Sec-Fetch-Site: none is refused", c.method, c.target)
		}
	}
}

// What a page can send without asking first, a form or a post of text, is not
// signed and so refused; what it asks first is not allowed; and no answer lets a
// page read it.
func TestPagesOnEveryRoute(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	r.agent("ben")
	readable := func(what string, a answer) {
		t.Helper()
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: the answer has %s", what, name)
			}
		}
	}
	for _, c := range everyRoute {
		c.agent = "ann"
		readable(c.target, r.do(c))
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			post := call{method: http.MethodPost, target: c.target, body: c.body, unsigned: true, header: []string{"Content-Type: " + kind}}
			if a := r.do(post); a.status != http.StatusUnauthorized {
				t.Errorf("%s as %s, unsigned, is %d", c.target, kind, a.status)
			}
			// Only the bytes count, so the same is fine when it is signed.
			post.unsigned, post.agent, post.method = c.unsigned, "ann", c.method
			if a := r.do(post); a.status == http.StatusUnauthorized && !c.unsigned {
				t.Errorf("%s as %s, signed, is %d", c.target, kind, a.status)
			}
		}
		asked := call{method: http.MethodOptions, target: c.target, unsigned: true, header: []string{
			"Origin: https://page.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-relay-signature",
		}}
		a := r.do(asked)
		readable("asking for "+c.target, a)
		if a.status != http.StatusForbidden {
			t.Errorf("asking for %s is %d", c.target, a.status)
		}
		// A page whose name was made to resolve to this machine.
		for _, host := range []string{"page.example", "page.example:80", "127.0.0.1.page.example", "localhost.page.example", "0", "[::ffff:10.0.0.1]"} {
			c.host = host
			if a := r.do(c); a.status != http.StatusMisdirectedRequest {
				t.Errorf("%s at %s is %d", c.target, host, a.status)
			}
		}
	}
}

func TestHosts(t *testing.T) {
	r := newRelay(t, setup{publicHosts: []string{"Relay.Example", "10.1.2.3", "dotted.example."}})
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		t.Fatal(err)
	}
	for host, ours := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:" + port: true, "127.0.0.1:1": true, "127.8.9.10": true,
		"localhost": true, "LocalHost:80": true, "localhost.": true, "localhost.:80": true, "localhost:": true,
		"[::1]": true, "[::1]:19121": true, "[0:0:0:0:0:0:0:1]": true, "[::ffff:127.0.0.1]:80": true,
		"relay.example": true, "RELAY.EXAMPLE:443": true, "relay.example.": true, "10.1.2.3:80": true, "dotted.example": true,
		"example": false, "relay.example.com": false, "x.relay.example": false, "localhost.example": false, "xlocalhost": false,
		"127.0.0.1.example": false, "0.0.0.0": false, "[::]": false, "10.1.2.4": false, "[2001:db8::1]": false, "128.0.0.1": false,
		"2130706433": false, "0x7f.1": false, "127.1": false, ".": false,
	} {
		a := r.do(call{target: "/", unsigned: true, host: host})
		if ours {
			a.want(http.StatusOK, nil)
		} else {
			a.wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
		}
	}
	c := r.dial()
	c.send([]byte("GET / HTTP/1.1\r\nHost:\r\n\r\n"))
	c.receive(http.MethodGet).wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
	// A target in absolute form names the host itself, and that counts (RFC
	// 9112 section 3.2.2).
	r.do(call{target: "http://relay.example/", unsigned: true, host: "example"}).want(http.StatusOK, nil)
	r.do(call{target: "http://example/", unsigned: true, host: "localhost"}).want(http.StatusMisdirectedRequest, nil)
}
