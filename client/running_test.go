package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

const secret = "0123456789abcdef0123456789abcdef"

// startRelay runs a real broker, and returns its URL.
func startRelay(t testing.TB) string {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	arrivals := broker.NewArrivals()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Options: store.Options{Wake: arrivals.Notify}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Open(t.Context(), broker.Options{
		Store: s, Arrivals: arrivals, Secret: secret, Heartbeat: time.Minute, TTL: time.Hour,
		Lockout: broker.Lockout{Failures: 5, Duration: time.Minute}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(running) }()
	server := httptest.NewServer(httpapi.New(httpapi.Options{
		Broker: b, Version: "test", Storage: "sqlite", MaxBodyBytes: 1 << 20,
		Lease: time.Minute, PerAgent: 1e6, PerAddress: 1e6, Log: log,
	}))
	t.Cleanup(func() {
		b.Drain()
		server.Close()
		stop()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func agent(t testing.TB, url, name string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Agent: name, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t testing.TB, from *client.Client, to string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := from.Send(t.Context(), client.Outgoing{ID: id, To: to, Body: client.TextBody(id), Ack: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// read runs the loop until n messages came, and breaks at the last of them.
func read(t *testing.T, c *client.Client, o client.MessagesOptions, n int) (ids []string) {
	t.Helper()
	for m, err := range c.Messages(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, m.ID); len(ids) == n {
			break
		}
	}
	return ids
}

func TestMessagesGoesOnWhereItWas(t *testing.T) {
	url := startRelay(t)
	alpha, beta := agent(t, url, "alpha"), agent(t, url, "beta")
	send(t, alpha, "beta", "a", "b", "c", "d", "e")
	o := client.MessagesOptions{Progress: client.ProgressFile(filepath.Join(t.TempDir(), "beta.json")), Limit: 2}
	if got := read(t, beta, o, 4); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Fatalf("read %v", got)
	}
	// The loop was left at d, which therefore comes again; c does not.
	if got := read(t, beta, o, 2); !slices.Equal(got, []string{"d", "e"}) {
		t.Errorf("then %v", got)
	}
}

func TestMessagesShowsARedeliveryOnce(t *testing.T) {
	url := startRelay(t)
	alpha, beta := agent(t, url, "alpha"), agent(t, url, "beta")
	send(t, alpha, "beta", "a")
	var got []string
	for m, err := range beta.Messages(t.Context(), client.MessagesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.ID)
		if m.ID == "last" {
			break
		}
		leased, err := beta.Pull(t.Context(), client.PullOptions{})
		if err != nil || len(leased) != 1 {
			t.Fatal(leased, err)
		}
		if _, err := beta.Settle(t.Context(), client.Settlement{ID: "a", LeaseID: leased[0].LeaseID, Outcome: agentrelay.OutcomeRetry}); err != nil {
			t.Fatal(err)
		}
		send(t, alpha, "beta", "last")
	}
	if !slices.Equal(got, []string{"a", "last"}) {
		t.Errorf("read %v", got)
	}
}

func TestMessagesEnds(t *testing.T) {
	url := startRelay(t)
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for _, err := range agent(t, url, "beta").Messages(ctx, client.MessagesOptions{Progress: canceller{cancel}}) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the end of the context gives %v", last)
	}
	wrong, err := client.New(client.Options{URL: url, Agent: "beta", Secret: secret + "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range wrong.Messages(t.Context(), client.MessagesOptions{}) {
		last = err
	}
	if !errors.Is(last, agentrelay.ErrUnauthenticated) {
		t.Errorf("a wrong secret gives %v", last)
	}
}

// canceller ends the context as soon as the loop runs.
type canceller struct{ cancel func() }

func (c canceller) Load(context.Context) (client.Progress, error) {
	time.AfterFunc(0, c.cancel)
	return client.Progress{}, nil
}

func (canceller) Save(context.Context, client.Progress) error { return nil }

func TestWork(t *testing.T) {
	url := startRelay(t)
	alpha, worker := agent(t, url, "alpha"), agent(t, url, "worker")
	send(t, alpha, "worker", "good", "bad", "again", "last")
	send(t, worker, "alpha", "asked")
	if _, err := alpha.Ack(t.Context(), "asked", client.AckOptions{}); err != nil { // a receipt for the worker
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	tries, receipts := 0, 0
	err := worker.Work(ctx, client.WorkerOptions{
		OnReceipt: func(agentrelay.Message) {
			if receipts++; tries == 2 {
				stop()
			}
		},
		OnError: func(err error) { t.Error(err) },
		Handle: func(_ context.Context, m agentrelay.Message) error {
			switch m.ID {
			case "bad":
				return errors.New("cannot be done")
			case "again":
				if tries++; tries == 1 {
					return client.Retry(errors.New("not yet"))
				}
				if receipts > 0 {
					stop()
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]agentrelay.Status{"good": "done", "bad": "failed", "again": "done", "last": "done", "never": client.StatusNotFound}
	list, err := alpha.Status(t.Context(), "good", "bad", "again", "last", "never")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if m.Status != want[m.ID] {
			t.Errorf("%s is %s, want %s", m.ID, m.Status, want[m.ID])
		}
	}
	if tries != 2 || receipts != 1 {
		t.Errorf("%d tries, %d receipts", tries, receipts)
	}
	failed, err := alpha.Query(t.Context(), client.Filter{From: "worker"})
	if err != nil || !slices.ContainsFunc(failed, func(m agentrelay.Message) bool {
		return m.ReplyTo == "bad" && string(m.Body) == `{"status":"error","error":"cannot be done"}`
	}) {
		t.Errorf("the sender has %v, %v", failed, err)
	}
	if recent, err := worker.Recent(t.Context(), 2); err != nil || len(recent) != 2 {
		t.Errorf("recent are %v, %v", recent, err)
	}
}

func TestWorkIsBoundedAndStopsCleanly(t *testing.T) {
	url := startRelay(t)
	alpha, worker := agent(t, url, "alpha"), agent(t, url, "worker")
	for i := range 9 {
		send(t, alpha, "worker", fmt.Sprint("m", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	var running, most atomic.Int32
	err := worker.Work(ctx, client.WorkerOptions{
		Concurrency: 3,
		Handle: func(ctx context.Context, m agentrelay.Message) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if running.Load() == 3 {
				stop()
			}
			<-ctx.Done()
			return ctx.Err()
		},
	})
	if err != nil || running.Load() != 0 || most.Load() != 3 {
		t.Errorf("%v; %d run, %d did at once", err, running.Load(), most.Load())
	}
	queued, err := worker.Query(t.Context(), client.Filter{Status: agentrelay.StatusQueued})
	if err != nil || len(queued) != 9 {
		t.Errorf("%d messages are back, %v", len(queued), err)
	}
}

func TestWorkRenewsAndNoticesALostLease(t *testing.T) {
	url := startRelay(t)
	alpha, worker := agent(t, url, "alpha"), agent(t, url, "worker")
	send(t, alpha, "worker", "slow")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	var cause error
	err := worker.Work(ctx, client.WorkerOptions{
		Lease: time.Second,
		Handle: func(handling context.Context, m agentrelay.Message) error {
			defer stop()
			for until := m.LeaseUntil; time.Now().Before(until.Add(300 * time.Millisecond)); {
				list, err := worker.Status(ctx, "slow")
				if err != nil || list[0].Status != agentrelay.StatusLeased {
					t.Errorf("while the handler runs: %v, %v", list, err)
					return err
				}
			}
			// Somebody else ends the message: the next renewal is refused.
			if _, err := worker.Ack(ctx, "slow", client.AckOptions{}); err != nil {
				t.Error(err)
			}
			<-handling.Done()
			cause = context.Cause(handling)
			return nil
		},
	})
	if err != nil || !errors.Is(cause, client.ErrLeaseLost) || time.Since(began) < time.Second {
		t.Errorf("%v, %v", err, cause)
	}
}

func TestWorkNeedsAHandler(t *testing.T) {
	if err := agent(t, startRelay(t), "worker").Work(t.Context(), client.WorkerOptions{}); err == nil {
		t.Error("a worker without a handler works")
	}
}

func TestRequest(t *testing.T) {
	url := startRelay(t)
	alpha, beta := agent(t, url, "alpha"), agent(t, url, "beta")
	send(t, beta, "alpha", "old")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- beta.Work(ctx, client.WorkerOptions{Handle: func(ctx context.Context, m agentrelay.Message) error {
			if strings.Contains(string(m.Body), "refuse") {
				return errors.New("no such city")
			}
			_, err := beta.Send(ctx, client.Reply(m, json.RawMessage(`{"sunny":true}`)))
			return err
		}})
	}()
	reply, err := alpha.Request(t.Context(), client.Outgoing{ID: "q1", To: "beta", Body: client.TextBody("weather?")})
	if err != nil || string(reply.Body) != `{"sunny":true}` || reply.ParentID != "q1" || reply.RootID != "q1" || reply.Kind != agentrelay.KindReply {
		t.Errorf("%+v, %v", reply, err)
	}
	if _, err := alpha.Request(t.Context(), client.Outgoing{To: "beta", Body: client.TextBody("refuse")}); !errors.Is(err, client.ErrUndelivered) || !strings.Contains(err.Error(), "no such city") {
		t.Errorf("a refusal answers %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := alpha.Request(short, client.Outgoing{To: "beta"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody answers: %v", err)
	}
	if list, err := alpha.Status(t.Context(), reply.ID, "old"); err != nil || list[0].Status != agentrelay.StatusDone || list[1].Status != agentrelay.StatusQueued {
		t.Errorf("the reply and other mail are %v, %v", list, err)
	}
}
