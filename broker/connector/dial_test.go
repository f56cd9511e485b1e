package connector

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestDialFailures(t *testing.T) {
	t.Parallel()
	elsewhere := atomic.Int64{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/moved/relay":
			http.Redirect(w, q, other.URL+"/relay", http.StatusTemporaryRedirect)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"/moved": "status 307", "/refused": "status 403"} {
		if _, _, err := dialTo(t, server.URL+path, WebSocketOptions{}).Dial(within(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("it follows a redirect")
	}
	other.Close()
	if _, _, err := dialTo(t, other.URL+"/?key=canary", WebSocketOptions{}).Dial(within(t)); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("nobody is there: %v", err)
	}
	if _, _, err := (&WebSocketDialer{URL: "gopher://x"}).Dial(within(t)); err == nil {
		t.Error("gopher is dialled")
	}
}

// Without a token nothing is proved.
func TestDialWithoutAToken(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error {
		if p.token != "" {
			return errors.New("there is a token")
		}
		return errors.Join(p.greet(), p.say(inbound(1, "b1")), p.want(ackFrame("b1")), p.untilGone())
	})
	d := dialTo(t, c.url, WebSocketOptions{})
	d.Tokens = nil
	got := make(chan Inbound, 1)
	runTo(t, c.url, Options{Dialer: d, Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error { got <- f; return nil }}})
	if f := <-got; f.Authenticated {
		t.Errorf("%+v", f)
	}
}

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		" https://bridge.example/ \n":      "wss://bridge.example/relay",
		"http://bridge.example:8080":       "ws://bridge.example:8080/relay",
		"HTTPS://bridge.example/a/b///":    "wss://bridge.example/a/b/relay",
		"wss://bridge.example/relay/":      "wss://bridge.example/relay",
		"ws://[::1]:9/x/relay":             "ws://[::1]:9/x/relay",
		"ws://bridge.example/a%2Fb?x=1&y":  "ws://bridge.example/a%2Fb/relay?x=1&y",
		"ws://bridge.example/betarelay":    "ws://bridge.example/betarelay/relay",
		"bridge.example":                   "",
		"ftp://bridge.example":             "",
		"https://":                         "",
		"https:///relay":                   "",
		"https://user:word@bridge.example": "",
		"https://bridge.example/#top":      "",
		"https://bridge.example:port/":     "",
		"":                                 "",
	} {
		got, err := ParseURL(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "word") && !strings.Contains(err.Error(), "password") {
			t.Errorf("the error quotes the URL: %v", err)
		}
	}
}
