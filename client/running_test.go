package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

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
	t.Parallel()
	r := startRelay(t)
	alpha, beta := r.agent(t, "alpha"), r.agent(t, "beta")
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

// requeue has a message delivered again.
func requeue(t *testing.T, c *client.Client, id string) {
	t.Helper()
	leased, err := c.Pull(t.Context(), client.PullOptions{Limit: 1})
	if err != nil || len(leased) != 1 || leased[0].ID != id {
		t.Fatalf("pulled %v, %v, want %s", leased, err, id)
	}
	if _, err := c.Settle(t.Context(), client.Settlement{ID: id, LeaseID: leased[0].LeaseID, Outcome: agentrelay.OutcomeRetry}); err != nil {
		t.Fatal(err)
	}
}

func TestMessagesShowsARedeliveryOnce(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, beta := r.agent(t, "alpha"), r.agent(t, "beta")
	send(t, alpha, "beta", "a")
	o := client.MessagesOptions{Progress: client.ProgressFile(filepath.Join(t.TempDir(), "beta.json"))}
	var got []string
	for m, err := range beta.Messages(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, m.ID); m.ID == "last" {
			break
		}
		requeue(t, beta, "a")
		send(t, alpha, "beta", "last")
	}
	if !slices.Equal(got, []string{"a", "last"}) {
		t.Errorf("read %v", got)
	}
	// The next run remembers it, too.
	requeue(t, beta, "a")
	if got := read(t, beta, o, 1); !slices.Equal(got, []string{"last"}) {
		t.Errorf("then %v", got)
	}
}

func TestMessagesOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	o := client.MessagesOptions{Progress: client.ProgressFile(filepath.Join(t.TempDir(), "beta.json"))}
	resets := 0
	o.OnReset = func() { resets++ }
	for i, want := range []string{"a", "b"} {
		r := startRelay(t)
		send(t, r.agent(t, "alpha"), r.agent(t, "beta").Agent(), want, want+"2")
		if got := read(t, r.agent(t, "beta"), o, 2); !slices.Equal(got, []string{want, want + "2"}) || resets != i {
			t.Errorf("read %v, %d resets", got, resets)
		}
		// Only what was left by asking for more is behind the cursor.
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range r.agent(t, "beta").Messages(ctx, o) {
			if cancel(); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		cancel()
	}
}

func TestMessagesAcrossARestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*relay) error{"shut down": (*relay).stop, "broken off": (*relay).crash} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelay(t)
			alpha, beta := r.agent(t, "alpha"), r.agent(t, "beta")
			send(t, alpha, "beta", "a")
			hook, waits := once(func(q *http.Request) bool { return strings.Contains(q.RequestURI, "wait=") })
			r.onRequest.Store(&hook)
			restarted := make(chan error, 1)
			go func() {
				<-waits
				err := errors.Join(end(r), r.start())
				if err == nil {
					_, err = alpha.Send(t.Context(), client.Outgoing{ID: "b", To: "beta"})
				}
				restarted <- err
			}()
			var away, back int
			o := client.MessagesOptions{
				OnAway: func(error, time.Duration) { away++ }, OnBack: func() { back++ }, OnReset: func() { t.Error("reset") },
			}
			if got := read(t, beta, o, 2); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("read %v", got)
			}
			if err := <-restarted; err != nil {
				t.Fatal(err)
			}
			// A connection that breaks is made anew at once, and may find the
			// broker back already.
			if (away > 0) != (back == 1) || away == 0 && name == "shut down" {
				t.Errorf("away %d times, back %d", away, back)
			}
		})
	}
}

func TestMessagesEnds(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook, waits := once(func(q *http.Request) bool { return strings.Contains(q.RequestURI, "wait=") })
	r.onRequest.Store(&hook)
	go func() { <-waits; cancel() }()
	var last error
	for _, err := range r.agent(t, "beta").Messages(ctx, client.MessagesOptions{}) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the end of the context gives %v", last)
	}
	for _, err := range r.client(t, client.Options{Agent: "beta", Secret: secret + "x"}).Messages(t.Context(), client.MessagesOptions{}) {
		last = err
	}
	if !errors.Is(last, agentrelay.ErrUnauthenticated) {
		t.Errorf("a wrong secret gives %v", last)
	}
}

func TestWork(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, worker := r.agent(t, "alpha"), r.agent(t, "worker")
	send(t, alpha, "worker", "good", "bad", "again", "last")
	send(t, worker, "alpha", "asked")
	if _, err := alpha.Ack(t.Context(), "asked", client.AckOptions{}); err != nil { // a receipt for the worker
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
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
	want := map[string]agentrelay.Status{"good": "done", "bad": "failed", "again": "done", "last": "done"}
	list, err := alpha.Status(t.Context(), "good", "bad", "again", "last")
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
	told, err := alpha.Query(t.Context(), client.Filter{From: "worker"})
	if err != nil || !slices.ContainsFunc(told, func(m agentrelay.Message) bool {
		return m.ReplyTo == "bad" && string(m.Body) == `{"status":"error","error":"cannot be done"}`
	}) {
		t.Errorf("the sender has %v, %v", told, err)
	}
}

func TestWorkIsBoundedAndStopsCleanly(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, worker := r.agent(t, "alpha"), r.agent(t, "worker")
	for i := range 9 {
		send(t, alpha, "worker", fmt.Sprint("m", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running, most, handled atomic.Int32
	err := worker.Work(ctx, client.WorkerOptions{
		Concurrency: 3,
		OnError:     func(err error) { t.Error(err) },
		Handle: func(ctx context.Context, m agentrelay.Message) error {
			now := running.Add(1)
			defer running.Add(-1)
			for {
				if before := most.Load(); before >= now || most.CompareAndSwap(before, now) {
					break
				}
			}
			if handled.Add(1) == 3 {
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
	t.Parallel()
	r := startRelay(t)
	alpha, worker := r.agent(t, "alpha"), r.agent(t, "worker")
	send(t, alpha, "worker", "slow")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	renewals := make(chan struct{}, 100)
	hook := func(q *http.Request) {
		if q.URL.Path == "/v1/lease/renew" {
			renewals <- struct{}{}
		}
	}
	r.onRequest.Store(&hook)
	var cause error
	err := worker.Work(ctx, client.WorkerOptions{
		Lease: time.Second,
		Handle: func(handling context.Context, m agentrelay.Message) error {
			defer stop()
			for range 5 { // each after a third of the lease: the first one is over
				<-renewals
			}
			if list, err := worker.Status(ctx, "slow"); err != nil || list[0].Status != agentrelay.StatusLeased || list[0].Attempts != 0 {
				t.Errorf("while the handler runs: %v, %v", list, err)
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
	if err != nil || !errors.Is(cause, client.ErrLeaseLost) || !errors.Is(cause, agentrelay.ErrNotLeased) {
		t.Errorf("%v, %v", err, cause)
	}
}

func TestWorkAcrossARestart(t *testing.T) {
	t.Parallel()
	r := startRelay(t)
	alpha, worker := r.agent(t, "alpha"), r.agent(t, "worker")
	send(t, alpha, "worker", "first")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	handled := make(chan string, 10)
	goOn := make(chan struct{})
	ended := make(chan error, 1)
	var reported atomic.Int32
	go func() {
		ended <- worker.Work(ctx, client.WorkerOptions{
			Concurrency: 2,
			OnError:     func(error) { reported.Add(1) },
			Handle: func(_ context.Context, m agentrelay.Message) error {
				handled <- m.ID
				<-goOn
				return nil
			},
		})
	}()
	if id := <-handled; id != "first" {
		t.Fatalf("handled %s", id)
	}
	if err := errors.Join(r.stop(), r.start()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	send(t, alpha, "worker", "second")
	if id := <-handled; id != "second" {
		t.Errorf("after the restart it handles %s", id)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	list, err := alpha.Status(t.Context(), "first", "second")
	if err != nil || list[0].Status != agentrelay.StatusDone || list[1].Status != agentrelay.StatusDone || len(handled) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if reported.Load() == 0 {
		t.Error("nobody was told that the broker was away")
	}
}
