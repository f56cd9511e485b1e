package client

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// routed answers each call by its route, and notes what was asked when. A
// route that a test does not set greets, registers, settles, renews, and waits
// in vain for messages as a broker does.
type routed struct {
	began time.Time

	mu     sync.Mutex
	routes map[string]func(called) (*http.Response, error)
	calls  []called
}

// called is one request.
type called struct {
	ctx                context.Context
	at                 time.Duration // since the test began
	route, query, body string
}

// begin makes a client of agent beta whose calls r answers.
func (r *routed) begin(t *testing.T) *Client {
	t.Helper()
	r.began = time.Now()
	if r.routes == nil {
		r.routes = map[string]func(called) (*http.Response, error){}
	}
	c, err := New(Options{Agent: "beta", Secret: testSecret, Transport: r})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *routed) RoundTrip(q *http.Request) (*http.Response, error) {
	c := called{ctx: q.Context(), at: time.Since(r.began), route: q.Method + " " + q.URL.Path, query: q.URL.RawQuery}
	if q.Body != nil {
		data, err := io.ReadAll(q.Body)
		if err != nil {
			return nil, err
		}
		c.body = string(data)
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	answer := r.routes[c.route]
	r.mu.Unlock()
	if answer == nil {
		answer = usual
	}
	resp, err := answer(c)
	return signed(q, resp, err)
}

func usual(c called) (*http.Response, error) {
	switch {
	case c.route == "GET /":
		return answers(200, `{"protocol":"1.0"}`)()
	case c.route == "POST /register":
		return answers(200, `{"ok":true,"agent":"beta"}`)()
	case c.route == "GET /messages":
		return holds(c, `{"messages":[],"cursor":null}`)
	case c.route == "POST /v1/pull":
		return holds(c, `{"messages":[]}`)
	case c.route == "POST /v1/lease/renew":
		return answers(200, `{"ok":true,"leaseUntil":1}`)()
	case c.route == "POST /v1/ack":
		return answers(200, `{"ok":true,"status":"done","attempts":0}`)()
	case strings.HasSuffix(c.route, "/ack"):
		return answers(201, `{"accepted":true,"id":"receipt"}`)()
	}
	return answers(404, `{"error":{"code":"not_found","message":"no such route"}}`)()
}

// holds answers when the time is up that the call waits.
func holds(c called, body string) (*http.Response, error) {
	timer := time.NewTimer(c.wait())
	defer timer.Stop()
	select {
	case <-timer.C:
		return answers(200, body)()
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

// hangs answers never.
func hangs(c called) (*http.Response, error) {
	<-c.ctx.Done()
	return nil, c.ctx.Err()
}

func away(called) (*http.Response, error) { return breaks() }

func always(status int, body string) func(called) (*http.Response, error) {
	return func(called) (*http.Response, error) { return answers(status, body)() }
}

// inTurn answers with one after the other, and from then on as usual.
func inTurn(list ...func(called) (*http.Response, error)) func(called) (*http.Response, error) {
	return func(c called) (*http.Response, error) {
		if len(list) == 0 {
			return usual(c)
		}
		next := list[0]
		list = list[1:]
		return next(c)
	}
}

// wait is how long the call asks the broker to wait.
func (c called) wait() time.Duration {
	text := c.query + "&"
	_, after, found := strings.Cut(text, "wait=")
	if !found {
		_, after, found = strings.Cut(c.body, `"waitSeconds":`)
	}
	if !found {
		return 0
	}
	end := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	seconds, err := strconv.Atoi(after[:end])
	if err != nil {
		panic(err)
	}
	return time.Duration(seconds) * time.Second
}

// to are the calls of a route.
func (r *routed) to(route string) []called {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.calls), func(c called) bool { return c.route != route })
}

// bodies are what was posted to a route.
func (r *routed) bodies(route string) (list []string) {
	for _, c := range r.to(route) {
		list = append(list, c.body)
	}
	return list
}

// times are when a route was called.
func (r *routed) times(route string) (list []time.Duration) {
	for _, c := range r.to(route) {
		list = append(list, c.at)
	}
	return list
}

// about tells whether a pause is spread by no more than a fifth.
func about(got, want time.Duration) bool { return want*4/5 <= got && got <= want*6/5 }
