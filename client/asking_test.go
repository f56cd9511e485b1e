package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// serve answers requests as agent name until the test ends.
func (r *relay) serve(t *testing.T, name string, handle func(context.Context, *client.Client, agentrelay.Message) error) {
	t.Helper()
	c := r.agent(t, name)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Work(ctx, client.WorkerOptions{Concurrency: 4, Handle: func(ctx context.Context, m agentrelay.Message) error {
			return handle(ctx, c, m)
		}})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestRequest(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha := r.agent(t, "alpha")
	r.serve(t, "beta", func(ctx context.Context, c *client.Client, m agentrelay.Message) error {
		switch {
		case strings.Contains(string(m.Body), "refuse"):
			return errors.New("no such city")
		case strings.Contains(string(m.Body), "never"):
			return client.Retry(errors.New("not today"))
		}
		_, err := c.Send(ctx, client.Reply(m, m.Body))
		return err
	})
	send(t, r.agent(t, "gamma"), "alpha", "old")
	reply, err := alpha.Request(t.Context(), client.Outgoing{ID: "q1", To: "beta", Body: client.TextBody("weather?")})
	if err != nil || string(reply.Body) != `{"text":"weather?"}` || reply.ParentID != "q1" || reply.RootID != "q1" || reply.Kind != agentrelay.KindReply {
		t.Errorf("%+v, %v", reply, err)
	}
	if list, err := alpha.Status(t.Context(), reply.ID, "old"); err != nil || list[0].Status != agentrelay.StatusDone || list[1].Status != agentrelay.StatusQueued {
		t.Errorf("the reply and other mail are %v, %v", list, err)
	}
	for text, says := range map[string]string{"refuse": "no such city", "never": "undelivered"} {
		_, err := alpha.Request(t.Context(), client.Outgoing{To: "beta", Body: client.TextBody(text)})
		if !errors.Is(err, client.ErrUndelivered) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s answers %v", text, err)
		}
	}
	if _, err := alpha.Request(t.Context(), client.Outgoing{To: "nobody"}); !errors.Is(err, agentrelay.ErrNoSuchAgent) {
		t.Errorf("a recipient that is not there: %v", err)
	}
}

func TestRequestThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, beta := r.agent(t, "alpha"), r.agent(t, "beta")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook, waits := once(func(q *http.Request) bool { return strings.Contains(q.RequestURI, "wait=") })
	r.onRequest.Store(&hook)
	go func() { <-waits; cancel() }()
	if _, err := alpha.Request(ctx, client.Outgoing{ID: "q1", To: "beta"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	// The reply comes late, and is there for the request that is sent again.
	asked := read(t, beta, client.MessagesOptions{}, 1)
	if !slices.Equal(asked, []string{"q1"}) {
		t.Fatalf("beta has %v", asked)
	}
	page, err := beta.Poll(t.Context(), client.PollOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := beta.Send(t.Context(), client.Reply(page.Messages[0], json.RawMessage(`"late"`))); err != nil {
		t.Fatal(err)
	}
	send(t, beta, "alpha", "newer")
	if reply, err := alpha.Request(t.Context(), client.Outgoing{ID: "q1", To: "beta"}); err != nil || string(reply.Body) != `"late"` {
		t.Errorf("%s, %v", reply.Body, err)
	}
}

func TestRequestsAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha := r.agent(t, "alpha")
	r.serve(t, "beta", func(ctx context.Context, c *client.Client, m agentrelay.Message) error {
		_, err := c.Send(ctx, client.Reply(m, m.Body))
		return err
	})
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			body := fmt.Sprint(i)
			reply, err := alpha.Request(t.Context(), client.Outgoing{To: "beta", Body: json.RawMessage(body)})
			if err != nil || string(reply.Body) != body {
				t.Errorf("%s is answered with %s, %v", body, reply.Body, err)
			}
		})
	}
	asking.Wait()
	if left, err := alpha.Poll(t.Context(), client.PollOptions{}); err != nil || len(left.Messages) != 0 {
		t.Errorf("left in the inbox: %v, %v", left.Messages, err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, beta, gamma := r.agent(t, "alpha"), r.agent(t, "beta"), r.agent(t, "gamma")
	send(t, alpha, "beta", "a", "b", `c&'(~)`)
	send(t, gamma, "beta", "foreign")
	if _, err := beta.Ack(t.Context(), "b", client.AckOptions{Failed: true}); err != nil {
		t.Fatal(err)
	}
	list, err := alpha.Status(t.Context(), "b", "a", "none", "foreign", `c&'(~)`, "no \"id\" \xff at all", "a")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		got = append(got, m.ID+" "+string(m.Status))
	}
	want := []string{"b failed", "a queued", "none not_found", "foreign not_found", `c&'(~) queued`, "no \"id\" \ufffd at all not_found", "a queued"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if m := list[1]; m.From != "alpha" || m.To != "beta" || m.TS.IsZero() || m.Body != nil {
		t.Errorf("%+v", m)
	}
	if list, err := alpha.Status(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("of no ids: %v, %v", list, err)
	}
	if list, err := alpha.Status(t.Context(), make([]string, agentrelay.MaxStatusIDs)...); err != nil || len(list) != agentrelay.MaxStatusIDs {
		t.Errorf("of as many as may be: %d, %v", len(list), err)
	}
	if _, err := alpha.Status(t.Context(), make([]string, agentrelay.MaxStatusIDs+1)...); !errors.Is(err, agentrelay.ErrBadRequest) || !strings.Contains(err.Error(), "201") {
		t.Errorf("of one more: %v", err)
	}
}

func TestRecentAndQuery(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, beta, gamma := r.agent(t, "alpha"), r.agent(t, "beta"), r.agent(t, "gamma")
	if list, err := beta.Recent(t.Context(), 0); err != nil || len(list) != 0 {
		t.Errorf("of an empty inbox: %v, %v", list, err)
	}
	send(t, alpha, "beta", "a", "b")
	send(t, gamma, "beta", "c")
	if _, err := gamma.Send(t.Context(), client.Outgoing{ID: "d", To: "beta", Kind: agentrelay.KindRequest, Body: json.RawMessage(`{ "n":1e400}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := beta.Ack(t.Context(), "b", client.AckOptions{}); err != nil {
		t.Fatal(err)
	}
	ids := func(list []agentrelay.Message, err error) string {
		if err != nil {
			return err.Error()
		}
		var ids []string
		for _, m := range list {
			ids = append(ids, m.ID)
		}
		return strings.Join(ids, " ")
	}
	for want, limit := range map[string]int{"d c b a": 0, "d c": 2, "d c b": 3} {
		if got := ids(beta.Recent(t.Context(), limit)); got != want {
			t.Errorf("the %d most recent are %s, want %s", limit, got, want)
		}
	}
	if list, err := beta.Recent(t.Context(), 1); err != nil || string(list[0].Body) != `{ "n":1e400}` || list[0].From != "gamma" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, c := range []struct {
		f    client.Filter
		want string
	}{
		{client.Filter{}, "d c b a"},
		{client.Filter{From: "alpha"}, "b a"},
		{client.Filter{Status: agentrelay.StatusDone}, "b"},
		{client.Filter{Kind: agentrelay.KindRequest}, "d"},
		{client.Filter{From: "gamma", Kind: agentrelay.KindMessage, Status: agentrelay.StatusQueued}, "c"},
		{client.Filter{From: "beta"}, ""},
		{client.Filter{Limit: 1}, "d"},
		{client.Filter{MaxBytes: 1}, "d"},
	} {
		if got := ids(beta.Query(t.Context(), c.f)); got != c.want {
			t.Errorf("%+v selects %s, want %s", c.f, got, c.want)
		}
	}
	if _, err := beta.Query(t.Context(), client.Filter{Status: "gone"}); !errors.Is(err, agentrelay.ErrBadRequest) {
		t.Errorf("a status that does not exist: %v", err)
	}
}

// A local clock that is far off does not keep an agent from a real broker.
func TestClockOffset(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	for _, off := range []time.Duration{-12 * time.Hour, 300500 * time.Millisecond, 45 * time.Second} {
		var asked atomic.Int32
		hook := func(*http.Request) { asked.Add(1) }
		r.onRequest.Store(&hook)
		c := r.client(t, client.Options{Agent: "alpha", Now: func() time.Time { return time.Now().Add(off) }})
		for range 2 {
			if err := c.Register(t.Context()); err != nil {
				t.Errorf("%v off: %v", off, err)
			}
		}
		if asked.Load() != 3 {
			t.Errorf("%v off: %d requests, want one more than calls", off, asked.Load())
		}
	}
}

// losing hands requests on and throws the first answers away.
type losing struct {
	http.RoundTripper
	answers int
}

func (l *losing) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(q)
	if err == nil && l.answers > 0 {
		l.answers--
		return nil, errors.Join(errors.New("the connection broke"), resp.Body.Close())
	}
	return resp, err
}

func TestSendWhoseAnswerIsLostIsStoredOnce(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	beta := r.agent(t, "beta")
	r.agent(t, "alpha")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	alpha := r.client(t, client.Options{Agent: "alpha", Transport: &losing{transport, 2}, Pauses: []time.Duration{1, 1, 1}})
	sent, err := alpha.Send(t.Context(), client.Outgoing{To: "beta", Body: client.TextBody("once")})
	if err != nil || !sent.Duplicate {
		t.Errorf("%+v, %v", sent, err)
	}
	if page, err := beta.Poll(t.Context(), client.PollOptions{}); err != nil || len(page.Messages) != 1 || page.Messages[0].ID != sent.ID {
		t.Errorf("%+v, %v", page, err)
	}
}
