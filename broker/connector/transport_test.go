package connector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var typing = Action{Op: OpTyping, ChatID: "c"}

// sent is what Send returned.
type sent struct {
	Result
	err error
}

// send sends in the background.
func (r *running) send(ctx context.Context, a Action) <-chan sent {
	c := make(chan sent, 1)
	go func() {
		result, err := r.Send(ctx, a, bot)
		c <- sent{result, err}
	}()
	return c
}

func TestNew(t *testing.T) {
	d := &dialer{}
	for name, o := range map[string]Options{
		"no dialer":          {Identities: []Identity{bot}},
		"no identity":        {Dialer: d},
		"no platform":        {Dialer: d, Identities: []Identity{{BotID: "b"}}},
		"the same one twice": {Dialer: d, Identities: []Identity{bot, {"chat", "other"}, bot}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: is taken", name)
		}
	}
}

func TestRunOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		if err := r.Run(t.Context()); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("run twice: %v", err)
		}
		r.end(t, m)
		// And then again.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestHandshakeTimeout(t *testing.T) {
	for name, block := range map[string]bool{"no descriptor": false, "hello is not taken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				if block {
					m.toPeer = nil
				}
				r := run(t, Options{Dialer: &dialer{dial: func(int) (*memory, error) { return m, nil }}})
				began := time.Now()
				for p := range r.phases {
					if p == Waiting {
						break
					}
				}
				if took := time.Since(began); took != 30*time.Second {
					t.Errorf("it takes %v", took)
				}
				if err := r.Status().Err; !errors.Is(err, ErrNoDescriptor) {
					t.Errorf("the error is %v", err)
				}
				r.stop()
				r.wantEnd(t, nil)
			})
		})
	}
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		one := r.send(t.Context(), typing)
		first := m.asked(t)
		two := r.send(t.Context(), Action{Op: OpSend, ChatID: "d", Content: "x"})
		second := m.asked(t)
		if first.Action.ChatID != "c" || second.Action.ChatID != "d" || first.RequestID == second.RequestID || first.Identity != bot {
			t.Errorf("%+v, %+v", first, second)
		}
		m.answer(second, Result{Success: true, MessageID: "2"})
		m.answer(Outbound{RequestID: "unknown"}, Result{})
		m.answer(first, Result{Error: "no", Code: CodeEgressDeclined})
		m.answer(first, Result{Success: true}) // too late
		if got := <-two; got.err != nil || !got.Success || got.MessageID != "2" {
			t.Errorf("%+v", got)
		}
		if got := <-one; got.err != nil || got.Success || got.Code != CodeEgressDeclined || got.Ambiguous {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if n := r.Status().OtherFrames; n != 2 {
			t.Errorf("%d results had no request", n)
		}
		r.end(t, m)
	})
}

func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		began := time.Now()
		got, err := r.Send(t.Context(), typing, bot)
		if took := time.Since(began); err != nil || !got.Ambiguous || got.Success || took != 30*time.Second {
			t.Errorf("%+v, %v after %v", got, err, took)
		}
		// Somebody who does not wait that long does not know either.
		ctx, cancel := context.WithCancel(t.Context())
		given := r.send(ctx, typing)
		m.asked(t)
		m.asked(t)
		cancel()
		if got := <-given; got.err != nil || !got.Ambiguous {
			t.Errorf("%+v", got)
		}
		if r.Status().Phase != Online {
			t.Error("it is not online any more")
		}
		r.end(t, m)
	})
}

// When the connection drops, everything that waits for it knows at once.
func TestDropSettlesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		asked := r.send(t.Context(), typing)
		request := m.asked(t)
		answered := r.send(t.Context(), typing)
		other := m.asked(t)
		m.answer(other, Result{Success: true}) // is still read
		began := time.Now()
		m.drop(errors.New("dropped"))
		if got := <-asked; got.err != nil || got.Success || !got.Ambiguous || got.Error != "relay transport connection lost" {
			t.Errorf("%+v to %s", got, request.RequestID)
		}
		if got := <-answered; got.err != nil || !got.Success {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it takes %v", took)
		}
		r.stop()
		r.wantEnd(t, nil)
	})
}

// What was not written can be sent again.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		m.toPeer = make(chan []byte) // nobody reads
		blocked := r.send(t.Context(), typing)
		synctest.Wait()
		behind := r.send(t.Context(), typing)
		ctx, cancel := context.WithCancel(t.Context())
		left := r.send(ctx, typing)
		synctest.Wait()
		cancel()
		if got := <-left; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, ErrNotSent) {
			t.Errorf("%+v", got)
		}
		m.drop(errors.New("dropped"))
		if got := <-blocked; got.err != nil || !got.Ambiguous {
			t.Errorf("the one that was being written: %+v", got)
		}
		if got := <-behind; !errors.Is(got.err, ErrOffline) {
			t.Errorf("the one behind it: %+v", got)
		}
		if _, err := r.Send(t.Context(), typing, bot); !errors.Is(err, ErrOffline) {
			t.Errorf("offline: %v", err)
		}
		if err := r.Interrupt(t.Context(), "k", ""); !errors.Is(err, ErrOffline) || !errors.Is(err, ErrNotSent) {
			t.Errorf("offline: %v", err)
		}
		r.stop()
		r.wantEnd(t, nil)
	})
}

// A connection that says it wrote nothing is believed.
func TestNotSentByTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		m.sendErr = fmt.Errorf("%w: closed", ErrNotSent)
		if _, err := r.Send(t.Context(), typing, bot); !errors.Is(err, ErrOffline) {
			t.Errorf("%v", err)
		}
		r.end(t, m)
	})
}

// A peer that takes nothing for 30 s is as good as gone.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		m.toPeer = make(chan []byte)
		began := time.Now()
		got, err := r.Send(t.Context(), typing, bot)
		if took := time.Since(began); err != nil || !got.Ambiguous || took != 30*time.Second {
			t.Errorf("%+v, %v after %v", got, err, took)
		}
		<-m.Done()
		r.stop()
		r.wantEnd(t, nil)
	})
}

func TestRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		if _, err := r.Send(t.Context(), typing, Identity{"chat", "other"}); !errors.Is(err, ErrUnknownIdentity) {
			t.Errorf("%v", err)
		}
		if _, err := r.Send(t.Context(), Action{Op: OpSend}, bot); err == nil {
			t.Error("an action without a chat is sent")
		}
		huge := Action{Op: OpSend, ChatID: "c", Content: strings.Repeat("x", MaxFrame)}
		if _, err := r.Send(t.Context(), huge, bot); !errors.Is(err, ErrFrameTooLarge) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		m.silent(t)
		r.end(t, m)
	})
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		if err := r.Interrupt(t.Context(), "k", "why"); err != nil {
			t.Error(err)
		}
		m.want(t, `{"type":"interrupt","session_key":"k","reason":"why"}`)
		r.end(t, m)
	})
}

func TestDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{Identities: []Identity{bot, {"other", "1"}, {"other", "2"}}})
		m.want(t, `{"type":"hello","platform":"other","botId":"1"}`, `{"type":"hello","platform":"other","botId":"2"}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.Await(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		m.say(
			`{"type":"descriptor","descriptor":{"contract_version":0,"platform":"other"}}`,
			`{"type":"descriptor","descriptor":{"contract_version":7,"platform":"other","label":"O"}}`,
		)
		if d, err := r.Await(t.Context(), "other"); err != nil || d.Label != "O" || d.ContractVersion != 7 {
			t.Errorf("%+v, %v", d, err)
		}
		status := r.Status()
		if len(status.Descriptors) != 2 || status.Descriptors[0].Platform != "chat" || status.BadFrames != 1 || status.Connections != 1 {
			t.Errorf("%+v", status)
		}
		r.end(t, m)
	})
}

func TestGoingIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{Handlers: Handlers{Inbound: func(context.Context, Inbound) error { return nil }}})
		m.say(`{"type":"going_idle_ack"}`) // nobody asked
		synctest.Wait()
		pending := r.send(t.Context(), typing)
		request := m.asked(t)
		r.stop()
		m.want(t, idleFrame)
		// It goes on serving.
		m.say(`{"type":"inbound","event":{},"bufferId":"b1"}`)
		m.want(t, `{"type":"inbound_ack","bufferId":"b1"}`)
		late := r.send(t.Context(), typing)
		second := m.asked(t)
		m.say(`{"type":"going_idle_ack"}`, `{"type":"going_idle_ack"}`)
		synctest.Wait()
		if _, err := r.Send(t.Context(), typing, bot); !errors.Is(err, ErrOffline) {
			t.Errorf("after the leave: %v", err)
		}
		m.say(`{"type":"inbound","event":{},"bufferId":"b2"}`)
		m.want(t, `{"type":"inbound_ack","bufferId":"b2"}`)
		m.answer(request, Result{Success: true})
		m.answer(second, Result{Success: true})
		if a, b := <-pending, <-late; !a.Success || !b.Success {
			t.Errorf("%+v, %+v", a, b)
		}
		began := time.Now()
		r.wantEnd(t, nil)
		if code := <-m.closed; code != CloseGoingAway || !time.Now().Equal(began) {
			t.Errorf("closed with %d", code)
		}
		m.silent(t)
	})
}

func TestGoingIdleWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		pending := r.send(t.Context(), typing)
		m.asked(t)
		began := time.Now()
		r.stop()
		r.wantEnd(t, nil)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it takes %v", took)
		}
		if got := <-pending; !got.Ambiguous {
			t.Errorf("%+v", got)
		}
	})
}

func TestGoingIdleAndDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{})
		began := time.Now()
		r.stop()
		m.want(t, idleFrame)
		m.drop(errors.New("dropped"))
		r.wantEnd(t, nil)
		if !time.Now().Equal(began) {
			t.Error("it waits for somebody who is gone")
		}
	})
}

// What came in before the connector's leave is acknowledged to it.
func TestGoingIdleWithABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := online(t, Options{Handlers: Handlers{Inbound: func(context.Context, Inbound) error {
			time.Sleep(time.Second)
			return nil
		}}})
		m.say(inbound(1, "b1"), inbound(2, "b2"))
		synctest.Wait()
		began := time.Now()
		r.stop()
		m.want(t, idleFrame)
		m.say(`{"type":"going_idle_ack"}`)
		m.want(t, ackFrame("b1"), ackFrame("b2"))
		r.wantEnd(t, nil)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it takes %v", took)
		}
	})
}
