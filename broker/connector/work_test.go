package connector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// taken collects what handlers took.
type taken struct {
	mu  sync.Mutex
	got []string
}

func (k *taken) add(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, what)
}

func (k *taken) want(t *testing.T, want ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.got, want) {
		t.Errorf("handled %q, want %q", k.got, want)
	}
}

func inbound(event int, buffer string) string {
	return string(Inbound{Event: fmt.Appendf(nil, "%s", fmt.Sprintf(`{"n":%d}`, event)), BufferID: buffer}.AppendJSON(nil))
}

func ackFrame(buffer string) string { return string(InboundAck{buffer}.AppendJSON(nil)) }

func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Frame
		r, m := online(t, Options{Handlers: Handlers{
			Inbound:     func(_ context.Context, f Inbound) error { got = append(got, f); return nil },
			Passthrough: func(_ context.Context, f Passthrough) error { got = append(got, f); return nil },
			Interrupt:   func(_ context.Context, f InterruptInbound) error { got = append(got, f); return nil },
		}})
		m.say(
			`{"type":"inbound","event":{"source":{"deliveredViaUpstreamRelay":true}},"bufferId":"b1"}`,
			`{"type":"interrupt_inbound","session_key":"k","chat_id":"c"}`,
			`{"type":"brand_new"}`,
			`{"type":"inbound","event":{}}`,
			`{"type":"passthrough_forward","forward":{"method":"GET"},"bufferId":"b2"}`,
		)
		m.want(t, ackFrame("b1"), ackFrame("b2"))
		synctest.Wait()
		m.silent(t)
		want := []Frame{
			Inbound{[]byte(`{"source":{}}`), "b1", true},
			InterruptInbound{"k", "c", true},
			Inbound{Event: []byte(`{}`), Authenticated: true},
			Passthrough{Method: "GET", BufferID: "b2", Authenticated: true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if s := r.Status(); s.Handled != 4 || s.Acked != 2 || s.OtherFrames != 1 || s.BadFrames != 0 {
			t.Errorf("%+v", s)
		}
		r.end(t, m)
	})
}

// Without a handler there is no acknowledgement.
func TestNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		m.say(inbound(1, "b1"), `{"type":"inbound","event":7,"bufferId":"b2"}`, `{"type":"passthrough_forward","forward":{},"bufferId":"b3"}`, `{"type":"interrupt_inbound","session_key":"k"}`)
		synctest.Wait()
		m.silent(t)
		if s := r.Status(); s.OtherFrames != 3 || s.BadFrames != 1 || s.Acked != 0 {
			t.Errorf("%+v", s)
		}
		r.end(t, m)
	})
}

// Frames that cannot be read do not block the rest, and do not come again if
// that can be helped.
func TestBadFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k taken
		r, m := online(t, Options{Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
			k.add(f.BufferID)
			if f.BufferID == "b3" {
				return Permanent(errors.New("never"))
			}
			return nil
		}}})
		m.say(inbound(1, "b1"), "", `{"type":7}`, `{"type":"inbound","event":7,"bufferId":"b2"}`, inbound(3, "b3"), `{"type":"inbound","event":7}`, inbound(4, "b4"))
		m.want(t, ackFrame("b1"), ackFrame("b2"), ackFrame("b3"), ackFrame("b4"))
		k.want(t, "b1", "b3", "b4")
		synctest.Wait()
		if s := r.Status(); s.BadFrames != 3 || s.SetAside != 2 || s.Handled != 2 || s.Acked != 4 {
			t.Errorf("%+v", s)
		}
		r.end(t, m)
	})
}

// While an error lasts, nothing overtakes the frame that met it, and reading
// stops when the queue is full; results before that are read.
func TestPassingError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k taken
		full := errors.New("the inbox is full")
		until := time.Now().Add(time.Minute)
		r, m := online(t, Options{Limits: Limits{QueueFrames: 2}, Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
			if time.Now().Before(until) {
				return full
			}
			k.add(f.BufferID)
			return nil
		}}})
		result := r.send(t.Context(), typing)
		request := m.asked(t)
		m.say(inbound(1, "b1"), inbound(2, "b2"), inbound(3, "b3"))
		m.answer(request, Result{Success: true})
		if got := <-result; !got.Success {
			t.Errorf("%+v", got)
		}
		m.say(inbound(4, "b4"), inbound(5, "b5"), inbound(6, "b6"))
		synctest.Wait()
		if left := len(m.toRelay); left != 2 { // one with the handler, two in the queue, one in hand
			t.Errorf("%d frames are not read, want 2", left)
		}
		if s := r.Status(); !errors.Is(s.Stalled, full) || s.Backlog != 3 {
			t.Errorf("%+v", s)
		}
		m.silent(t)
		m.want(t, ackFrame("b1"), ackFrame("b2"), ackFrame("b3"), ackFrame("b4"), ackFrame("b5"), ackFrame("b6"))
		if late := time.Since(until); late < 0 || late > 5*time.Second {
			t.Errorf("it takes %v to notice", late)
		}
		k.want(t, "b1", "b2", "b3", "b4", "b5", "b6")
		synctest.Wait()
		if s := r.Status(); s.Stalled != nil || s.Backlog != 0 {
			t.Errorf("%+v", s)
		}
		r.end(t, m)
	})
}

// The queue is bounded in bytes, too.
func TestQueueBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r, m := online(t, Options{Limits: Limits{QueueBytes: 60}, Handlers: Handlers{Inbound: func(context.Context, Inbound) error { <-release; return nil }}})
		m.say(inbound(1, ""), inbound(2, ""), inbound(3, ""), inbound(4, ""), inbound(5, ""), inbound(6, ""))
		synctest.Wait()
		if left := len(m.toRelay); left != 2 {
			t.Errorf("%d frames are not read, want 2", left)
		}
		close(release)
		synctest.Wait()
		r.end(t, m)
	})
}

// A handler may send, and gets its result while it handles.
func TestHandlerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *running
		ready := make(chan struct{})
		r, m := online(t, Options{Handlers: Handlers{Inbound: func(ctx context.Context, _ Inbound) error {
			<-ready
			result, err := r.Send(ctx, typing, bot)
			if err != nil || !result.Success {
				t.Errorf("%+v, %v", result, err)
			}
			return nil
		}}})
		close(ready)
		m.say(inbound(1, "b1"))
		m.answer(m.asked(t), Result{Success: true})
		m.want(t, ackFrame("b1"))
		r.end(t, m)
	})
}

// What came in by a connection that dropped is handled before what comes in by
// the next one, and acknowledged to nobody.
func TestOrderAcrossConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k taken
		release := make(chan struct{})
		one, two := newMemory(), newMemory()
		r := run(t, Options{
			Dialer: &dialer{dial: func(n int) (*memory, error) { return []*memory{one, two}[n-1], nil }},
			Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
				<-release
				k.add(string(f.Event) + f.BufferID)
				return nil
			}},
		})
		one.say(descriptorFrame, inbound(1, "b1"), inbound(2, ""), inbound(3, "b3"))
		synctest.Wait()
		one.drop(errors.New("dropped"))
		two.want(t, helloFrame)
		two.say(descriptorFrame, inbound(1, "b1"), inbound(3, "b3"), inbound(4, "b4"))
		synctest.Wait()
		k.want(t)
		close(release)
		two.want(t, ackFrame("b1"), ackFrame("b3"), ackFrame("b4"))
		k.want(t, `{"n":1}b1`, `{"n":2}`, `{"n":3}b3`, `{"n":1}b1`, `{"n":3}b3`, `{"n":4}b4`)
		one.want(t, helloFrame)
		one.silent(t)
		r.end(t, two)
	})
}

// Requests know of the end of a connection also while reading has stopped, and
// results that had arrived are still read.
func TestDropWhileReadingHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r, m := online(t, Options{Limits: Limits{QueueFrames: 1}, Handlers: Handlers{Inbound: func(context.Context, Inbound) error { <-release; return nil }}})
		lost := r.send(t.Context(), typing)
		m.asked(t)
		answered := r.send(t.Context(), typing)
		request := m.asked(t)
		m.say(inbound(1, "b1"), inbound(2, "b2"), inbound(3, "b3"), inbound(4, ""))
		m.answer(request, Result{Success: true})
		synctest.Wait()
		began := time.Now()
		m.drop(errors.New("dropped"))
		if got := <-lost; !got.Ambiguous {
			t.Errorf("%+v", got)
		}
		if got := <-answered; !got.Success {
			t.Errorf("%+v", got)
		}
		if !time.Now().Equal(began) {
			t.Error("it does not know at once")
		}
		synctest.Wait()
		if s := r.Status(); s.DroppedAtEnd != 2 {
			t.Errorf("%+v", s)
		}
		close(release)
		r.stop()
		r.wantEnd(t, nil)
	})
}

// At the end the handler gets what is there; an error that passes ends it.
func TestEndWithABacklog(t *testing.T) {
	for name, c := range map[string]struct {
		failing string
		want    []string
		dropped uint64
	}{
		"all is handled": {"", []string{"b1", "b2", "b3"}, 0},
		"an error":       {"b2", []string{"b1"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var k taken
				release := make(chan struct{})
				r, m := online(t, Options{Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
					<-release
					if f.BufferID == c.failing {
						return errors.New("full")
					}
					k.add(f.BufferID)
					return nil
				}}})
				m.say(inbound(1, "b1"), inbound(2, "b2"), inbound(3, "b3"))
				synctest.Wait()
				m.drop(errors.New("dropped"))
				r.stop()
				synctest.Wait()
				close(release)
				r.wantEnd(t, nil)
				k.want(t, c.want...)
				if s := r.Status(); s.DroppedAtEnd != c.dropped || s.Phase != Stopped {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A handler that never gets done is told to stop, and the leave ends in time.
func TestEndWithAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{Handlers: Handlers{Inbound: func(ctx context.Context, _ Inbound) error {
			<-ctx.Done()
			return ctx.Err()
		}}})
		m.say(inbound(1, "b1"), inbound(2, ""))
		synctest.Wait()
		began := time.Now()
		r.stop()
		m.want(t, idleFrame)
		m.say(`{"type":"going_idle_ack"}`)
		r.wantEnd(t, nil)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it takes %v", took)
		}
		m.silent(t)
		if s := r.Status(); s.DroppedAtEnd != 2 || s.Acked != 0 {
			t.Errorf("%+v", s)
		}
	})
}
