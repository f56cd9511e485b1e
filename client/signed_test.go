package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// newSquatter is a program that took the broker's port: it claims every
// capability and says yes to everything, but does not know the secret.
func newSquatter(t *testing.T, signature string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if signature != "" {
			w.Header().Set(agentrelay.HeaderSignature, signature)
		}
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, `{"protocol":"1.0","broker":"agent-relay","capabilities":{"signedResponses":true,"singleUseTimestamps":true}}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		id := "x"
		if _, rest, found := strings.Cut(string(body), `"id":"`); found {
			id, _, _ = strings.Cut(rest, `"`)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"ok":true,"accepted":true,"id":%q,"agent":"alpha","peers":[],"messages":[],"cursor":null,"status":"done","attempts":0,"leaseUntil":1}`, id)
	}))
	t.Cleanup(s.Close)
	return s
}

// everyCall makes each call that is signed.
func everyCall(t *testing.T, c *Client) map[string]error {
	t.Helper()
	ctx := t.Context()
	failures := map[string]error{}
	failures["Register"] = c.Register(ctx)
	_, failures["Peers"] = c.Peers(ctx)
	_, failures["Send"] = c.Send(ctx, Outgoing{To: "beta"})
	_, failures["Poll"] = c.Poll(ctx, PollOptions{})
	_, failures["Ack"] = c.Ack(ctx, "x", AckOptions{})
	_, failures["Pull"] = c.Pull(ctx, PullOptions{})
	_, failures["Settle"] = c.Settle(ctx, Settlement{ID: "x", LeaseID: "l", Outcome: agentrelay.OutcomeCompleted})
	_, failures["Renew"] = c.Renew(ctx, Renewal{ID: "x", LeaseID: "l"})
	_, failures["Status"] = c.Status(ctx, "x")
	_, failures["Recent"] = c.Recent(ctx, 1)
	_, failures["Query"] = c.Query(ctx, Filter{})
	return failures
}

// A success that is not signed is no success, and is not tried again.
func TestSquatter(t *testing.T) {
	for name, signature := range map[string]string{"unsigned": "", "made up": strings.Repeat("0", 64)} {
		s := newSquatter(t, signature)
		c := newClient(t, Options{URL: s.URL, Pauses: defaultPauses}) // a pause would take too long here
		if _, err := c.Handshake(t.Context()); err != nil {
			t.Fatal(err)
		}
		for call, err := range everyCall(t, c) {
			if !errors.Is(err, ErrNotRelay) || Passing(err) || !strings.Contains(err.Error(), "something else answers on this port") {
				t.Errorf("%s, %s: %v", call, name, err)
			}
		}
	}
	// Brokers that do not sign are taken at their word by those who ask for it.
	c := newClient(t, Options{URL: newSquatter(t, "").URL, AllowUnsigned: true})
	for call, err := range everyCall(t, c) {
		if err != nil {
			t.Errorf("%s, unsigned being allowed: %v", call, err)
		}
	}
}

// Of errors that are not signed, only those that a broker gives to everybody
// mean something.
func TestUnsignedErrors(t *testing.T) {
	meaningful := map[agentrelay.Code]bool{
		agentrelay.CodeUnauthenticated: true, agentrelay.CodeUnknownAgent: true, agentrelay.CodeLocked: true, agentrelay.CodeOriginRefused: true, agentrelay.CodeMisdirected: true,
		agentrelay.CodeBodyTooLarge: true, agentrelay.CodeRateLimited: true, agentrelay.CodeBusy: true,
	}
	for _, code := range append(agentrelay.Codes(), "of_the_future") {
		for _, signature := range []string{"", strings.Repeat("0", 64)} {
			s := httptest.NewServer(says(400, fmt.Sprintf(`{"error":{"code":%q,"message":"m"}}`, code), agentrelay.HeaderSignature, signature))
			err := newClient(t, Options{URL: s.URL}).Register(t.Context())
			if got := errors.Is(err, &agentrelay.Error{Code: code}); got != meaningful[code] || errors.Is(err, ErrNotRelay) == got {
				t.Errorf("%s, signature %q: %v", code, signature, err)
			}
			s.Close()
		}
	}
	// The clock of somebody who does not know the secret is not learned.
	for _, reason := range []agentrelay.Reason{
		agentrelay.ReasonTimestampSkew, agentrelay.ReasonReplayed, agentrelay.ReasonBeforeStart, agentrelay.ReasonSingleUseRequired,
	} {
		s := httptest.NewServer(says(401, fmt.Sprintf(`{"error":{"code":"unauthenticated","reason":%q,"message":"m","serverTime":1,"skewSeconds":1}}`, reason)))
		c := newClient(t, Options{URL: s.URL})
		if err := c.Register(t.Context()); !errors.Is(err, ErrNotRelay) || c.offset.Load() != 0 {
			t.Errorf("%s: %v, the clock is corrected by %d", reason, err, c.offset.Load())
		}
		s.Close()
	}
}

// A signature that is refused as used, or as older than the broker, is made
// anew once.
func TestSignedAnewOnce(t *testing.T) {
	for _, reason := range []agentrelay.Reason{agentrelay.ReasonReplayed, agentrelay.ReasonBeforeStart} {
		refused := answers(401, fmt.Sprintf(`{"error":{"code":"unauthenticated","reason":%q,"message":"m","serverTime":%d,"skewSeconds":1}}`, reason, 1<<30))
		good := answers(200, `{"ok":true,"agent":"alpha"}`)
		s := &scripted{answers: []func() (*http.Response, error){refused, good, refused, refused}}
		c := newClient(t, Options{Transport: s})
		if err := c.Register(t.Context()); err != nil || len(s.signed) != 2 || s.signed[0] == s.signed[1] {
			t.Errorf("%s: %v, signed %v", reason, err, s.signed)
		}
		var e *agentrelay.Error
		if err := c.Register(t.Context()); !errors.As(err, &e) || e.Reason != reason || len(s.signed) != 4 {
			t.Errorf("%s twice: %v after %d requests", reason, err, len(s.signed))
		}
	}
}

// A connection that was kept and turns out dead costs a call nothing, and no
// signature is sent twice. A pull may have been answered on it.
func TestDeadConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	var served sync.WaitGroup
	serve := func(conn net.Conn) {
		defer conn.Close()
		reader := bufio.NewReader(conn)
		for answered := 0; ; answered++ {
			q, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, q.Body)
			signature := q.Header.Get(agentrelay.HeaderSignature)
			mu.Lock()
			seen = append(seen, signature)
			mu.Unlock()
			if answered == 1 {
				return // the second request of a connection gets no answer
			}
			body := `{"peers":[],"ok":true,"agent":"alpha","messages":[]}`
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Relay-Signature: %s\r\n\r\n%s",
				len(body), agentrelay.SignAnswer(testSecret, signature, 200, []byte(body)), body)
		}
	}
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() { serve(conn) })
		}
	})
	c := newClient(t, Options{URL: "http://" + listener.Addr().String()})
	for i := range 4 {
		err := c.Register(t.Context())
		if i%2 == 0 {
			_, err = c.Peers(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Pull(t.Context(), PullOptions{}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a pull: %v", err)
	}
	c.Close()
	listener.Close()
	served.Wait()
	used := map[string]bool{}
	for _, signature := range seen {
		if used[signature] {
			t.Errorf("a signature was sent twice among %d requests", len(seen))
		}
		used[signature] = true
	}
	if len(seen) != 12 { // each of the six calls but the first found a dead connection, and so did the pull
		t.Errorf("%d requests arrived", len(seen))
	}
}

// Timestamps of one client never repeat, however coarse its clock.
func TestTimestampsDiffer(t *testing.T) {
	c := newClient(t, Options{Now: func() time.Time { return time.Unix(1755250000, 0) }})
	seen := map[string]bool{}
	for range 1000 {
		text := c.timestamp()
		if seen[text] {
			t.Fatalf("%s came twice", text)
		}
		seen[text] = true
	}
}
