package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// leases is an answer to a pull.
func leases(ids ...string) func(called) (*http.Response, error) {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"from":"alpha","to":"beta","type":"message","body":{},"status":"leased","leaseId":"L%s"}`, id, id))
	}
	return always(200, `{"messages":[`+strings.Join(list, ",")+`]}`)
}

// reports notes what OnError is told.
type reports struct {
	mu   sync.Mutex
	list []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, err)
}

const leaseOver = `{"error":{"code":"not_leased","message":"the lease is over"}}`

func TestWorkSettlesByTheHandlersError(t *testing.T) {
	long := strings.Repeat("é", 4000)
	for name, c := range map[string]struct {
		err         error
		route, body string
	}{
		"done":          {nil, "POST /v1/ack", `{"messageId":"a","leaseId":"La","outcome":"completed"}`},
		"retry":         {Retry(errors.New("not yet")), "POST /v1/ack", `{"messageId":"a","leaseId":"La","outcome":"retry","error":"not yet"}`},
		"wrapped retry": {fmt.Errorf("work: %w", Retry(errors.New("not yet"))), "POST /v1/ack", `{"messageId":"a","leaseId":"La","outcome":"retry","error":"work: not yet"}`},
		"long retry":    {Retry(errors.New(long)), "POST /v1/ack", `{"messageId":"a","leaseId":"La","outcome":"retry","error":"` + long[:4000] + `"}`},
		"failed":        {errors.New("cannot be"), "POST /messages/a/ack", `{"status":"error","error":"cannot be"}`},
		"silent":        {errors.New(""), "POST /messages/a/ack", `{"status":"error"}`},
		"long":          {errors.New("x" + long), "POST /messages/a/ack", `{"status":"error","error":"x` + long[:3998] + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &routed{routes: map[string]func(called) (*http.Response, error){"POST /v1/pull": inTurn(leases("a"))}}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				client := r.begin(t)
				// The second pull comes after the first message was settled.
				r.routes["POST /v1/pull"] = inTurn(leases("a"), func(q called) (*http.Response, error) { stop(); return hangs(q) })
				if err := client.Work(ctx, WorkerOptions{
					OnError: func(err error) { t.Error(err) },
					Handle:  func(context.Context, agentrelay.Message) error { return c.err },
				}); err != nil {
					t.Fatal(err)
				}
				if got := r.bodies(c.route); !slices.Equal(got, []string{c.body}) {
					t.Errorf("%s got %v, want %s", c.route, got, c.body)
				}
				if ended := len(r.to("POST /v1/ack")) + len(r.to("POST /messages/a/ack")); ended != 1 {
					t.Errorf("the message is ended %d times", ended)
				}
			})
		})
	}
}

func TestRetryKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	if err := Retry(cause); !errors.Is(err, cause) || err.Error() != "cause" {
		t.Errorf("%v", err)
	}
}

// What could not be settled at once is settled later, and else reported.
func TestWorkSettlesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"POST /v1/ack": inTurn(away, always(502, ""), usual, always(409, leaseOver))}}
		c, told := r.begin(t), &reports{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["POST /v1/pull"] = inTurn(leases("a"), leases("b"), leases("c"), func(q called) (*http.Response, error) { stop(); return hangs(q) })
		r.routes["POST /messages/c/ack"] = always(409, leaseOver)
		if err := c.Work(ctx, WorkerOptions{OnError: told.add, Handle: func(_ context.Context, m agentrelay.Message) error {
			if m.ID == "c" {
				return errors.New("failed")
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		if at := r.times("POST /v1/ack"); len(at) != 4 || !about(at[2]-at[0], 6*time.Second) {
			t.Errorf("settled at %v", at)
		}
		if len(told.list) != 2 || !errors.Is(told.list[0], agentrelay.ErrNotLeased) || !errors.Is(told.list[1], agentrelay.ErrNotLeased) {
			t.Errorf("reported %v", told.list)
		}
	})
}

func TestWorkStopsCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{}
		c := r.begin(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var running atomic.Int32
		// Two are worked on when a pull brings a third and the worker is stopped.
		r.routes["POST /v1/pull"] = inTurn(leases("a", "b"), func(called) (*http.Response, error) {
			time.Sleep(5 * time.Second)
			stop()
			return leases("c")(called{})
		})
		if err := c.Work(ctx, WorkerOptions{
			Concurrency: 3,
			OnError:     func(err error) { t.Error(err) },
			Handle: func(ctx context.Context, m agentrelay.Message) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				time.Sleep(time.Second) // cleaning up
				if m.ID == "b" {
					return nil // it was done in time after all
				}
				return ctx.Err()
			},
		}); err != nil {
			t.Fatal(err)
		}
		if running.Load() != 0 || time.Since(r.began) != 6*time.Second {
			t.Errorf("%d still run; ended after %v", running.Load(), time.Since(r.began))
		}
		got := r.bodies("POST /v1/ack")
		slices.Sort(got)
		want := []string{
			`{"messageId":"a","leaseId":"La","outcome":"retry","error":"context canceled"}`,
			`{"messageId":"b","leaseId":"Lb","outcome":"completed"}`,
			`{"messageId":"c","leaseId":"Lc","outcome":"retry","error":"given back: the worker stopped before it began"}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("settled with\n%s", strings.Join(got, "\n"))
		}
	})
}

// A worker that stops does not wait long for a broker that is away.
func TestWorkStopsWhileItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"POST /v1/pull": inTurn(leases("a")), "POST /v1/ack": hangs,
		}}
		c, told := r.begin(t), &reports{}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, stop)
		if err := c.Work(ctx, WorkerOptions{OnError: told.add, Handle: func(context.Context, agentrelay.Message) error { return nil }}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(r.began); took != 13*time.Second || len(told.list) != 1 {
			t.Errorf("ended after %v, reported %v", took, told.list)
		}
	})
}

func TestWorkEndsWithAnErrorThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{}
		r.routes = map[string]func(called) (*http.Response, error){
			"POST /v1/pull": inTurn(leases("a"), func(called) (*http.Response, error) {
				time.Sleep(time.Second)
				return answers(401, `{"error":{"code":"unauthenticated","reason":"bad_signature","message":"x"}}`)()
			}),
		}
		stopped := false
		err := r.begin(t).Work(t.Context(), WorkerOptions{Concurrency: 2, Handle: func(ctx context.Context, _ agentrelay.Message) error {
			<-ctx.Done()
			stopped = true
			return ctx.Err()
		}})
		if !errors.Is(err, agentrelay.ErrUnauthenticated) || !stopped {
			t.Errorf("%v; the handler was stopped: %v", err, stopped)
		}
		if got := r.bodies("POST /v1/ack"); len(got) != 1 || !strings.Contains(got[0], `"retry"`) {
			t.Errorf("settled with %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /": always(404, "<html>")}}
		if err := r.begin(t).Work(t.Context(), WorkerOptions{Handle: never}); !errors.Is(err, ErrNotRelay) {
			t.Errorf("%v", err)
		}
	})
}

func never(context.Context, agentrelay.Message) error { return nil }

func TestWorkWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drained := always(200, `{"messages":[]}`)
		r := &routed{}
		c, told := r.begin(t), &reports{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["GET /"] = inTurn(usual, away, always(503, busyAnswer))
		r.routes["POST /v1/pull"] = inTurn(drained, leases("a"), away, leases("b"), func(q called) (*http.Response, error) { stop(); return hangs(q) })
		var handled []string
		if err := c.Work(ctx, WorkerOptions{OnError: told.add, Handle: func(_ context.Context, m agentrelay.Message) error {
			handled = append(handled, m.ID)
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(handled, []string{"a", "b"}) || len(told.list) != 4 || !errors.Is(told.list[0], errEarly) || !errors.Is(told.list[3], ErrUnreachable) {
			t.Errorf("handled %v, reported %v", handled, told.list)
		}
		at := r.times("GET /")
		if len(at) != 5 || len(r.to("POST /register")) != 3 {
			t.Fatalf("greeted at %v", at)
		}
		for i, want := range []time.Duration{2, 4, 8, 2} {
			if pause := at[i+1] - at[i]; !about(pause, want*time.Second) {
				t.Errorf("pause %d is %v, want about %d s", i, pause, want)
			}
		}
	})
}

func TestWorkEndsWithItsDeadlineWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /": away}}
		c := r.begin(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.Work(ctx, WorkerOptions{Handle: never}); err != nil || len(r.calls) != 3 || time.Since(r.began) != 10*time.Second {
			t.Errorf("%v after %v and %d tries", err, time.Since(r.began), len(r.calls))
		}
	})
}

// Whatever becomes of a message, its place is free for another afterwards.
func TestWorkFreesItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 4
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"POST /v1/lease/renew":     always(409, leaseOver),
			"POST /messages/error/ack": always(400, `{"error":{"code":"bad_request","message":"x"}}`),
		}}
		c := r.begin(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		settle := func(q called) (*http.Response, error) {
			if strings.Contains(q.body, "unsettled") {
				return answers(409, leaseOver)()
			}
			return usual(q)
		}
		receipt := always(200, `{"messages":[{"id":"r","from":"alpha","to":"beta","type":"ack","body":{},"leaseId":"Lr"}]}`)
		idle := func(q called) (*http.Response, error) { return holds(q, `{"messages":[]}`) }
		r.routes["POST /v1/ack"] = settle
		r.routes["POST /v1/pull"] = inTurn(
			leases("done", "error", "retry", "unsettled"), idle, leases("lost", "exit", "done"), receipt, away, idle, idle,
			func(q called) (*http.Response, error) { stop(); return hangs(q) })
		var running atomic.Int32
		if err := c.Work(ctx, WorkerOptions{Concurrency: places, Handle: func(ctx context.Context, m agentrelay.Message) error {
			if n := running.Add(1); n > places {
				t.Errorf("%d at once", n)
			}
			defer running.Add(-1)
			switch m.ID {
			case "error":
				return errors.New("cannot be")
			case "retry":
				return Retry(errors.New("not yet"))
			case "lost":
				<-ctx.Done()
				return ctx.Err()
			case "exit":
				runtime.Goexit()
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		pulls := r.bodies("POST /v1/pull")
		if last := pulls[len(pulls)-1]; !strings.Contains(last, `"limit":`+strconv.Itoa(places)+`,`) {
			t.Errorf("the last pull asks for %s", last)
		}
	})
}

func TestWorkAsksForAsMuchAsIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{}
		c := r.begin(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["POST /v1/pull"] = inTurn(leases("a"), leases("b"), leases("c"), func(q called) (*http.Response, error) { stop(); return hangs(q) })
		if err := c.Work(ctx, WorkerOptions{Concurrency: 3, Handle: func(ctx context.Context, m agentrelay.Message) error {
			if m.ID == "a" {
				<-ctx.Done()
			} else {
				time.Sleep(time.Hour)
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		at := r.times("POST /v1/pull")
		var limits []string
		for _, body := range r.bodies("POST /v1/pull") {
			limits = append(limits, body[:len(`{"limit":1`)])
		}
		if want := []string{`{"limit":3`, `{"limit":2`, `{"limit":1`, `{"limit":1`}; !slices.Equal(limits, want) && !slices.Equal(limits, append(want[:3], `{"limit":2`)) {
			t.Errorf("asked for %v", limits)
		}
		if at[3] != time.Hour {
			t.Errorf("with no place free it pulled at %v", at)
		}
	})
}

func TestWorkSettlesReceipts(t *testing.T) {
	receipt := always(200, `{"messages":[{"id":"r","from":"alpha","to":"beta","type":"ack","replyTo":"m","body":{"status":"ok"},"leaseId":"Lr"}]}`)
	for _, listens := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{}
			c := r.begin(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r.routes["POST /v1/pull"] = inTurn(receipt, func(q called) (*http.Response, error) { stop(); return hangs(q) })
			var heard []string
			o := WorkerOptions{
				OnError: func(err error) { t.Error(err) },
				Handle:  func(context.Context, agentrelay.Message) error { t.Error("the handler sees a receipt"); return nil },
			}
			if listens {
				o.OnReceipt = func(m agentrelay.Message) { heard = append(heard, m.ReplyTo) }
			}
			if err := c.Work(ctx, o); err != nil {
				t.Fatal(err)
			}
			if got := r.bodies("POST /v1/ack"); !slices.Equal(got, []string{`{"messageId":"r","leaseId":"Lr","outcome":"completed"}`}) || listens != slices.Equal(heard, []string{"m"}) {
				t.Errorf("settled with %v, heard of %v", got, heard)
			}
		})
	}
}

func TestWorkerOptions(t *testing.T) {
	for _, c := range []struct {
		given WorkerOptions
		pull  string
	}{
		{WorkerOptions{}, `{"limit":1,"leaseSeconds":60,"waitSeconds":30}`},
		{WorkerOptions{Concurrency: -1, Lease: -1, Wait: -1}, `{"limit":1,"leaseSeconds":1,"waitSeconds":30}`},
		{WorkerOptions{Concurrency: 5, Lease: 1500 * time.Millisecond, Wait: time.Hour}, `{"limit":5,"leaseSeconds":2,"waitSeconds":60}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{}
			client := r.begin(t)
			ctx, stop := context.WithTimeout(t.Context(), 59*time.Second)
			defer stop()
			c.given.Handle = never
			c.given.OnError = func(err error) { t.Error(err) }
			if err := client.Work(ctx, c.given); err != nil {
				t.Fatal(err)
			}
			if got := r.bodies("POST /v1/pull")[0]; got != c.pull {
				t.Errorf("pulls with %s, want %s", got, c.pull)
			}
		})
	}
	if err := newClient(t, Options{Transport: noNetwork{t}}).Work(t.Context(), WorkerOptions{}); err == nil {
		t.Error("a worker without a handler works")
	}
}
