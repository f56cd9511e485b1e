package client

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestWorkRenewsWhileItHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"POST /v1/pull": inTurn(leases("a"))}}
		c := r.begin(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["POST /v1/ack"] = func(q called) (*http.Response, error) { stop(); return usual(q) }
		if err := c.Work(ctx, WorkerOptions{
			OnError: func(err error) { t.Error(err) },
			Handle:  func(context.Context, agentrelay.Message) error { time.Sleep(70 * time.Second); return nil },
		}); err != nil {
			t.Fatal(err)
		}
		if at := r.times("POST /v1/lease/renew"); !slices.Equal(at, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute}) {
			t.Errorf("renewed at %v", at)
		}
		if body := r.bodies("POST /v1/lease/renew")[0]; body != `{"messageId":"a","leaseId":"La","leaseSeconds":60}` {
			t.Errorf("renewed with %s", body)
		}
		if got := r.bodies("POST /v1/ack"); !slices.Equal(got, []string{`{"messageId":"a","leaseId":"La","outcome":"completed"}`}) {
			t.Errorf("settled with %v", got)
		}
		if pull := r.bodies("POST /v1/pull")[0]; pull != `{"limit":1,"leaseSeconds":60,"waitSeconds":30}` {
			t.Errorf("pulled with %s", pull)
		}
	})
}

// lost runs a worker whose message's lease ends while it is handled, and
// returns when and why the handler was told.
func lost(t *testing.T, r *routed, o WorkerOptions) (at time.Duration, told *reports, cause error) {
	t.Helper()
	c, told := r.begin(t), &reports{}
	r.routes["POST /v1/pull"] = inTurn(leases("a"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.OnError = told.add
	o.Handle = func(ctx context.Context, _ agentrelay.Message) error {
		<-ctx.Done()
		at, cause = time.Since(r.began), context.Cause(ctx)
		time.AfterFunc(time.Second, stop) // time enough to settle what must not be
		return nil
	}
	if err := c.Work(ctx, o); err != nil {
		t.Error(err)
	}
	if settled := append(r.to("POST /v1/ack"), r.to("POST /messages/a/ack")...); len(settled) != 0 {
		t.Errorf("a message whose lease was lost is settled: %v", settled)
	}
	return at, told, cause
}

func TestWorkLosesALease(t *testing.T) {
	for _, answer := range []func() (*http.Response, error){
		answers(409, leaseOver),
		answers(409, `{"error":{"code":"lease_mismatch","message":"another's"}}`),
		answers(404, `{"error":{"code":"no_such_message","message":"gone"}}`),
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{routes: map[string]func(called) (*http.Response, error){
				"POST /v1/lease/renew": inTurn(usual, func(called) (*http.Response, error) { return answer() }),
			}}
			at, told, cause := lost(t, r, WorkerOptions{Lease: 30 * time.Second})
			var reason *agentrelay.Error
			if at != 20*time.Second || !errors.Is(cause, ErrLeaseLost) || !errors.As(cause, &reason) {
				t.Errorf("%v after %v", cause, at)
			}
			if len(told.list) != 1 || !errors.Is(told.list[0], ErrLeaseLost) {
				t.Errorf("reported %v", told.list)
			}
		})
	}
}

// A lease that cannot be renewed is lost when it is over, and not before.
func TestWorkCannotRenew(t *testing.T) {
	for name, renew := range map[string]func(called) (*http.Response, error){
		"away":           away,
		"busy":           always(503, busyAnswer),
		"hangs":          hangs,
		"something else": always(200, "<html>"),
		"locked":         always(403, `{"error":{"code":"locked","message":"x"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &routed{routes: map[string]func(called) (*http.Response, error){"POST /v1/lease/renew": renew}}
				at, told, cause := lost(t, r, WorkerOptions{Lease: time.Minute})
				if at < time.Minute || at > 62*time.Second || !errors.Is(cause, ErrLeaseLost) {
					t.Errorf("%v after %v", cause, at)
				}
				if n := len(r.to("POST /v1/lease/renew")); n < 2 || n > 12 || len(told.list) != n {
					t.Errorf("%d tries, %d reports", n, len(told.list))
				}
			})
		})
	}
}

func TestWorkRenewsLaterWhatItCouldNotAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"POST /v1/pull":        inTurn(leases("a")),
			"POST /v1/lease/renew": inTurn(away, hangs, always(503, busyAnswer)),
		}}
		c, told := r.begin(t), &reports{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["POST /v1/ack"] = func(q called) (*http.Response, error) { stop(); return usual(q) }
		if err := c.Work(ctx, WorkerOptions{
			OnError: told.add,
			Handle: func(ctx context.Context, _ agentrelay.Message) error {
				time.Sleep(5 * time.Minute)
				return ctx.Err()
			},
		}); err != nil {
			t.Fatal(err)
		}
		if got := r.bodies("POST /v1/ack"); len(got) != 1 || !strings.Contains(got[0], `"completed"`) || len(told.list) != 3 {
			t.Errorf("settled with %v, reported %v", got, told.list)
		}
	})
}

// A message that is done needs no renewal, even one that is under way.
func TestWorkEndsARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"POST /v1/pull": inTurn(leases("a")), "POST /v1/lease/renew": hangs,
		}}
		c := r.begin(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r.routes["POST /v1/ack"] = func(q called) (*http.Response, error) { stop(); return usual(q) }
		if err := c.Work(ctx, WorkerOptions{
			OnError: func(err error) { t.Error(err) },
			Handle:  func(context.Context, agentrelay.Message) error { time.Sleep(22 * time.Second); return nil },
		}); err != nil {
			t.Fatal(err)
		}
		if at := r.times("POST /v1/ack"); !slices.Equal(at, []time.Duration{22 * time.Second}) {
			t.Errorf("settled at %v", at)
		}
	})
}

// Nor does one whose handler has left without a word; its lease runs out.
func TestWorkEndsTheRenewalsOfAHandlerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"POST /v1/pull": inTurn(leases("a"))}}
		c := r.begin(t)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if err := c.Work(ctx, WorkerOptions{Handle: func(context.Context, agentrelay.Message) error {
			time.Sleep(30 * time.Second)
			runtime.Goexit()
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		if at := r.times("POST /v1/lease/renew"); !slices.Equal(at, []time.Duration{20 * time.Second}) || len(r.to("POST /v1/ack")) != 0 {
			t.Errorf("renewed at %v", at)
		}
	})
}
