package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

// hooksOf are hooks that note what is fired, and decide as they are told.
type hooksOf struct {
	missing map[hook.Kind]bool
	decide  func(ctx context.Context, n int) hook.Result

	mu    sync.Mutex
	fired []string
	asked int
}

func (h *hooksOf) Installed(k hook.Kind) bool { return !h.missing[k] }

func (h *hooksOf) note(k hook.Kind, payload json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fired = append(h.fired, string(k)+" "+string(payload))
}

func (h *hooksOf) FireLater(k hook.Kind, payload json.RawMessage) bool {
	h.note(k, payload)
	return true
}

func (h *hooksOf) Enforce(ctx context.Context, k hook.Kind, payload json.RawMessage) hook.Result {
	h.note(k, payload)
	h.mu.Lock()
	h.asked++
	n := h.asked
	h.mu.Unlock()
	return h.decide(ctx, n)
}

// take returns what was fired since the last call.
func (h *hooksOf) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	fired := h.fired
	h.fired = nil
	return fired
}

func (h *hooksOf) want(t *testing.T, want ...string) {
	t.Helper()
	if got := h.take(); !slices.Equal(got, want) {
		t.Errorf("fired was\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func says(r hook.Result) func(context.Context, int) hook.Result {
	return func(context.Context, int) hook.Result { return r }
}

var yes = hook.Result{OK: true}

// entered is the payload for a message of the fixture's.
func entered(id string) string {
	return `pre-message {"timestamp":"2026-03-14T09:26:53.589Z","channel":"relay","user_id":"ann","message":"{}",` +
		`"message_id":"` + id + `","from":"ann","to":"ben","kind":"message","reply_to":null,"body":{}}`
}

func left(id, duration string) string {
	return `post-message {"timestamp":"2026-03-14T09:26:5` + duration + `,"message_id":"` + id + `","from":"ann","to":"ben","kind":"message"}`
}

func TestHooksOfMessages(t *testing.T) {
	h := &hooksOf{}
	f := newHookedFixture(t, NewBoundaries(h, false))
	stop := f.run()
	f.send("m1", "m2")
	h.want(t, entered("m1"), entered("m2"))
	f.send("m1") // a duplicate
	_, err := f.Send(ctx, agentrelay.Message{ID: "m1", From: "ann", To: "ben", Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Body: []byte(`1`)})
	if !errors.Is(err, agentrelay.ErrIDConflict) {
		t.Fatal(err)
	}
	h.want(t)

	// It leaves when the first hand-over is recorded, and never again.
	f.clock.Advance(1500 * time.Millisecond)
	leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 100, For: time.Minute}, 0)
	f.must(err)
	h.want(t)
	f.HandedOver(leased)
	h.want(t, left("m1", `5.089Z","channel":"relay","user_id":"ben","duration_ms":1500`))
	_, err = f.Settle(ctx, store.Settlement{Agent: "ben", ID: "m1", LeaseID: leased[0].LeaseID, Outcome: agentrelay.OutcomeRetry})
	f.must(err)
	_, err = f.Poll(ctx, f.inbox(), 0)
	f.must(err)
	f.must(stop()) // which records the hand-over
	h.want(t, left("m2", `5.089Z","channel":"relay","user_id":"ben","duration_ms":1500`))

	// Receipts fire nothing.
	_, err = f.Acknowledge(ctx, store.Acknowledgement{Agent: "ben", ID: "m1"})
	f.must(err)
	receipts, err := f.Pull(ctx, store.LeaseRequest{Agent: "ann", Limit: 1, MaxBytes: 100, For: time.Minute}, 0)
	f.must(err)
	f.HandedOver(receipts)
	if h.want(t); len(receipts) != 1 {
		t.Errorf("ann got %v", receipts)
	}
}

// A hand-over that did not take place fires nothing; the next one does.
func TestHooksOfLeasesThatAreGivenBack(t *testing.T) {
	h := &hooksOf{missing: map[hook.Kind]bool{hook.PreMessage: true}}
	f := newHookedFixture(t, NewBoundaries(h, false))
	f.send("m1")
	pull := func() []store.Leased {
		leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 100, For: time.Minute}, 0)
		f.must(err)
		return leased
	}
	f.Return(ctx, "ben", pull())
	h.want(t)
	f.HandedOver(pull())
	if got := h.take(); len(got) != 1 || !strings.HasPrefix(got[0], "post-message") {
		t.Errorf("fired was %v", got)
	}
}

func TestHooksThatAreNotInstalled(t *testing.T) {
	h := &hooksOf{missing: map[hook.Kind]bool{hook.PreMessage: true, hook.PostMessage: true}}
	for _, enforce := range []bool{false, true} {
		f := newHookedFixture(t, NewBoundaries(h, enforce))
		f.send("m1")
		leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 100, For: time.Minute}, 0)
		f.must(err)
		f.HandedOver(leased)
		if h.want(t); f.store.count("Known") > 0 {
			t.Error("the store was asked twice without need")
		}
	}
}

func TestPayloadText(t *testing.T) {
	for body, want := range map[string]string{
		`{"text":"hi","n":1}`:                 "hi",
		`{"text": ""}`:                        "",
		`{"text":null, "n": 1}`:               `{"text":null,"n":1}`,
		`{"Text":"hi"}`:                       `{"Text":"hi"}`,
		`{ "n": 10000000000000000000000001 }`: `{"n":10000000000000000000000001}`,
		`"hi"`:                                `"hi"`,
		`[1, 2]`:                              `[1,2]`,
		`null`:                                `null`,
	} {
		if got := plainText(json.RawMessage(body)); got != want {
			t.Errorf("%s reads %q, want %q", body, got, want)
		}
	}
	m := message("m1")
	m.ReplyTo, m.Body = "m0", json.RawMessage(`{"big": 12345678901234567890}`)
	if got := string(NewBoundaries(nil, false).preMessage(&m, start)); !strings.HasSuffix(got, `"reply_to":"m0","body":{"big": 12345678901234567890}}`) {
		t.Errorf("the payload is %s", got)
	}
}

func TestEnforcedHooks(t *testing.T) {
	for name, c := range map[string]struct {
		result hook.Result
		want   error
		says   string
	}{
		"yes":       {yes, nil, ""},
		"no":        {hook.Failed(hook.Failure{Script: "10-no", Code: 3, StderrTail: "the secret"}), agentrelay.ErrHookRejected, "hook 10-no refuses"},
		"one no":    {hook.Failed(hook.Failure{Script: "1", Reason: "timed out (>5s)"}, hook.Failure{Script: "2", Code: 1}), agentrelay.ErrHookRejected, "hook 2 refuses"},
		"too slow":  {hook.Failed(hook.Failure{Script: "1", Reason: "timed out (>5s)", StderrTail: "the secret"}), agentrelay.ErrBusy, "hook 1 did not decide (timed out (>5s))"},
		"killed":    {hook.Failed(hook.Failure{Script: "1", Code: -1}), agentrelay.ErrBusy, "hook 1 did not decide (it was killed)"},
		"untold":    {hook.Result{}, agentrelay.ErrBusy, "hook of the broker failed"},
		"not to be": {hook.Failed(hook.Failure{Script: "-", Reason: "refused: hooks.d is writable by others"}), agentrelay.ErrBusy, "did not decide (refused"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hooksOf{decide: says(c.result)}
			f := newHookedFixture(t, NewBoundaries(h, true))
			_, err := f.Register(ctx, "ben")
			f.must(err)
			_, err = f.Send(ctx, message("m1"))
			if !errors.Is(err, c.want) || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%v, want %v", err, c.want)
			}
			h.want(t, entered("m1"))
			page, err := f.Poll(ctx, f.inbox(), 0)
			f.must(err)
			if stored := len(page.Messages) == 1; stored != (c.want == nil) {
				t.Errorf("stored: %v", stored)
			}
			// A message that is stored is not asked about again, nor fires later.
			_, err = f.Send(ctx, message("m1"))
			if c.want == nil {
				f.must(err)
				h.want(t)
			}
		})
	}
}

// All scripts together have the time of a write, whatever the sender allows.
func TestEnforcedHooksAreBounded(t *testing.T) {
	var left time.Duration
	h := &hooksOf{decide: func(ctx context.Context, _ int) hook.Result {
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		return yes
	}}
	f := newHookedFixture(t, NewBoundaries(h, true))
	f.send("m1")
	if left <= 0 || left > writeTimeout {
		t.Errorf("the hooks have %v, want at most %v", left, writeTimeout)
	}
}

// No hook is asked about what cannot be stored anyway.
func TestEnforcedHooksComeLast(t *testing.T) {
	h := &hooksOf{decide: says(yes)}
	f := newHookedFixture(t, NewBoundaries(h, true))
	f.send("m1")
	h.take()
	conflict, nobody := message("m1"), message("m2")
	conflict.Body, nobody.To = json.RawMessage(`1`), "zoe"
	if _, err := f.Send(ctx, conflict); !errors.Is(err, agentrelay.ErrIDConflict) {
		t.Error(err)
	}
	var e *agentrelay.Error
	if _, err := f.Send(ctx, nobody); !errors.As(err, &e) || e.Code != agentrelay.CodeNoSuchAgent || len(e.Suggestions) > 0 {
		t.Error(err)
	}
	h.want(t)
}

// Of the same message sent several times at once, one is decided on, and all
// get its outcome. Another message under its id waits for its turn.
func TestEnforcedHooksOfOneID(t *testing.T) {
	for name, first := range map[string]hook.Result{"yes": yes, "no": hook.Failed(hook.Failure{Script: "s", Code: 1})} {
		synctest.Test(t, func(t *testing.T) {
			asked, answer := make(chan struct{}, 10), make(chan struct{})
			h := &hooksOf{decide: func(_ context.Context, n int) hook.Result {
				asked <- struct{}{}
				if n == 1 {
					<-answer
					return first
				}
				return yes
			}}
			f := newHookedFixture(t, NewBoundaries(h, true))
			_, err := f.Register(ctx, "ben")
			f.must(err)
			other := message("m1")
			other.Body = json.RawMessage(`1`)
			results := make(chan string, 3)
			send := func(m agentrelay.Message) {
				sent, err := f.Send(ctx, m)
				var e *agentrelay.Error
				switch {
				case err == nil:
					results <- fmt.Sprintf("%s duplicate %v", m.Body, sent.Duplicate)
				case errors.As(err, &e):
					results <- fmt.Sprintf("%s %s", m.Body, e.Code)
				default:
					results <- err.Error()
				}
			}
			go send(message("m1"))
			<-asked
			go send(message("m1"))
			go send(other)
			gone, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := f.Send(gone, message("m1")); !errors.Is(err, context.Canceled) {
				t.Errorf("a sender that is gone: %v", err)
			}
			synctest.Wait() // until the others wait for the first
			close(answer)
			got := []string{<-results, <-results, <-results}
			slices.Sort(got)
			want := []string{"1 id_conflict", "{} duplicate false", "{} duplicate true"}
			if name == "no" {
				want = []string{"1 duplicate false", "{} hook_rejected", "{} hook_rejected"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
			if n := len(f.boundaries.sending); n != 0 {
				t.Errorf("%d are still being sent", n)
			}
		})
	}
}

// Messages that come from a chat, or go to one, tell hooks which it is.
func TestChannels(t *testing.T) {
	h := &hooksOf{}
	b := NewBoundaries(h, false)
	b.Channels(func(m *agentrelay.Message) string {
		if m.From == "chat" {
			return "telegram " + string(m.Body)
		}
		return ""
	})
	f := newHookedFixture(t, b)
	for _, from := range []string{"chat", "ann"} {
		_, err := f.Register(ctx, "ben")
		f.must(err)
		m := message("of-" + from)
		m.From = from
		_, err = f.Send(ctx, m)
		f.must(err)
	}
	leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1 << 20, For: time.Hour}, 0)
	f.must(err)
	f.HandedOver(leased)
	fired := h.take()
	if len(fired) != 3 {
		t.Fatalf("fired are %q", fired)
	}
	for i, want := range []string{`"channel":"telegram {}"`, `"channel":"relay"`, `"channel":"telegram {}"`} {
		if !strings.Contains(fired[i], want) {
			t.Errorf("fired is %s, want %s in it", fired[i], want)
		}
	}
}
