package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// arrivalOf is what a store reports of a message for agent.
func arrivalOf(agent string) []store.Event {
	return []store.Event{{Kind: store.EventAccepted, To: agent}}
}

func TestArrivals(t *testing.T) {
	a := newArrivals()
	a.observe(arrivalOf("nobody waits"))
	first, stopFirst := a.wait("ann")
	second, stopSecond := a.wait("ann")
	other, stopOther := a.wait("ben")
	a.observe(arrivalOf("ann"))
	<-first
	<-second
	select {
	case <-other:
		t.Error("ben was woken for ann")
	default:
	}
	// One who begins to wait now waits for the next.
	third, stopThird := a.wait("ann")
	stopFirst()
	stopSecond()
	select {
	case <-third:
		t.Error("an arrival woke one who began to wait after it")
	default:
	}
	for _, kind := range []store.EventKind{store.EventDelivered, store.EventDone, store.EventFailed, store.EventExpired} {
		a.observe([]store.Event{{Kind: kind, To: "ann"}})
	}
	select {
	case <-third:
		t.Error("one was woken by what is no arrival")
	default:
	}
	a.observe([]store.Event{{Kind: store.EventDone, To: "ann"}, {Kind: store.EventRequeued, To: "ben"}, {Kind: store.EventRequeued, To: "ann"}})
	<-third
	<-other
	stopThird()
	stopOther()
	for range 3 {
		_, stop := a.wait("zoe")
		stop()
	}
	if n := len(a.waiting); n != 0 {
		t.Errorf("%d inboxes are remembered for which nobody waits", n)
	}
}

func TestWaitIsClamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for wait, want := range map[time.Duration]time.Duration{
			-time.Second: 0, 0: 0, time.Millisecond: time.Millisecond, time.Minute: time.Minute, time.Hour: time.Minute,
		} {
			began := time.Now()
			page, err := f.Poll(ctx, f.inbox(), wait)
			f.must(err)
			if got := time.Since(began); got != want || len(page.Messages) != 0 {
				t.Errorf("a poll that may wait %v waits %v", wait, got)
			}
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began := time.Now()
		if _, err := f.Poll(limited, f.inbox(), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if got := time.Since(began); got != time.Second {
			t.Errorf("the wait ended after %v", got)
		}
		if n := len(f.hub.arrivals.waiting); n != 0 {
			t.Errorf("%d inboxes are waited for", n)
		}
	})
}

// Hand-overs are recorded once, in writes of bounded size; what could not be
// recorded is tried again with the next, with its own time.
func TestHandOversAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.store.next = time.Hour
		f.send("m1")
		f.run()
		f.store.fail("Delivered", errors.New("cannot write"))
		_, err := f.Poll(ctx, f.inbox(), 0)
		f.must(err)
		synctest.Wait()
		if n := f.store.count("Delivered"); n != 1 {
			t.Fatalf("a failed write was tried %d times", n)
		}
		f.store.fail("Delivered", nil)
		f.clock.Advance(time.Second)
		f.send("m2")
		_, err = f.Poll(ctx, f.inbox(), 0)
		f.must(err)
		synctest.Wait()
		_, err = f.Poll(ctx, f.inbox(), 0)
		f.must(err)
		synctest.Wait()
		if n := f.store.count("Delivered"); n != 2 {
			t.Errorf("the store was asked %d times, want once more", n)
		}
		list, err := f.Messages(ctx, "ann", []string{"m1", "m2"})
		f.must(err)
		for id, m := range list {
			if !m.DeliveredAt.Equal(start) { // the earliest stands for all of a write
				t.Errorf("%s was delivered at %v", id, m.DeliveredAt)
			}
		}
	})
}

func TestHandOversAreRecordedInBoundedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ids := make([]string, maxDeliveries+1)
		for i := range ids {
			ids[i] = fmt.Sprint("m", i)
		}
		sent := make(chan error)
		f.send()
		for _, id := range ids {
			go func() {
				_, err := f.Send(ctx, message(id))
				sent <- err
			}()
		}
		for range ids {
			f.must(<-sent)
		}
		_, err := f.Poll(ctx, f.inbox(), 0)
		f.must(err)
		if n := len(f.deliveries.at); n != len(ids) {
			t.Fatalf("%d hand-overs were noted, want %d", n, len(ids))
		}
		stop := f.run()
		f.must(stop()) // the end writes what is left
		if n := f.store.count("Delivered"); n != 2 || len(f.store.recorded) != len(ids) {
			t.Errorf("%d hand-overs were recorded in %d writes, want %d in 2", len(f.store.recorded), n, len(ids))
		}
	})
}

// A poll for somebody who is gone hands nothing over.
func TestPollForNobodyIsNoHandOver(t *testing.T) {
	f := newFixture(t)
	f.send("m")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	page, err := f.Poll(gone, f.inbox(), 0)
	f.must(err)
	if len(page.Messages) != 1 || len(f.deliveries.at) != 0 {
		t.Errorf("%d messages, %d hand-overs noted", len(page.Messages), len(f.deliveries.at))
	}
}

// Giving back is no reason to fail, whatever the store says.
func TestReturn(t *testing.T) {
	f := newFixture(t)
	f.send("m")
	request := store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}
	leased, err := f.Pull(ctx, request, 0)
	f.must(err)
	f.Return(ctx, "ben", nil)
	f.Return(ctx, "ben", leased)
	f.Return(ctx, "ben", leased) // no longer leased
	f.Return(ctx, "ben", []store.Leased{{}})
	again, err := f.Pull(ctx, request, 0)
	f.must(err)
	if len(again) != 1 || again[0].Attempts != 0 || !again[0].First {
		t.Errorf("pulled again %+v", again)
	}
}
