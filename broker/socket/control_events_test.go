//go:build !windows

package socket

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/broker"
)

var eventTime = time.Date(2026, 11, 30, 4, 13, 0, 272e6, time.UTC)

// accepted is the event of a message with a number for an id.
func accepted(i int) broker.Event {
	return broker.Event{Kind: "message_accepted", At: eventTime, ID: fmt.Sprint(i), From: "alpha", To: "beta"}
}

// Every event has the members of its kind.
func TestControlEvents(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.greet()
	s.control.Publish(accepted(0)) // nobody hears it
	c.ask(`{"id":2,"method":"subscribe"}`)
	var want []string
	for i, name := range EventNames() {
		members := `"agent":"gamma"`
		switch {
		case strings.HasPrefix(name, "message_"):
			members = `"id":"m/1","from":"alpha","to":"beta"`
		case name == "auth_failed":
			members = `"agent":"gamma","reason":"bad_signature"`
		case name == "hook_failed":
			members = `"hook":"pre-message","script":"a.sh"`
		}
		e := broker.Event{Kind: broker.EventKind(name), At: eventTime, ID: "m/1", From: "alpha", To: "beta", Agent: "gamma"}
		if name == "auth_failed" {
			e.Reason = "bad_signature"
		}
		line := fmt.Sprintf(`{"kind":"event","event":%q,"seq":%d,"ts":"2026-11-30T04:13:00.272Z",%s}`, name, i+1, members)
		switch name {
		case "hook_failed":
			s.control.publish(event{e, "pre-message", "a.sh"})
		case "config_reloaded":
			line = strings.Replace(line, `,"agent":"gamma"`, "", 1)
			s.control.Publish(e)
		default:
			s.control.Publish(e)
		}
		want = append(want, line)
	}
	var got []string
	for range want {
		got = append(got, c.hear())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// These have their time from here.
	s.control.HookFailed("cost-alert", "b.sh")
	s.control.ConfigReloaded()
	for _, members := range []string{`"hook":"cost-alert","script":"b.sh"`, ""} {
		var e struct {
			Event, TS, Hook, Script string
		}
		line := c.hear()
		if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.Contains(line, members) {
			t.Errorf("%s, %v", line, err)
		}
		if at, err := time.Parse(time.RFC3339, e.TS); err != nil || time.Since(at) > time.Hour || time.Since(at) < 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A subscription is to the events that are named, or to all; what it no longer
// wants no longer comes.
func TestControlSubscribe(t *testing.T) {
	s := newControlSocket(t, nil)
	c, other := s.greet(), s.greet()
	subscribers := func(want int) {
		t.Helper()
		if got := s.control.Stats().Subscribers; got != want {
			t.Errorf("%d subscribers, want %d", got, want)
		}
	}
	// All are published, and the ones that are wanted come, in order.
	seq := 0
	wants := func(names ...string) {
		t.Helper()
		for _, name := range append(EventNames(), "lagged", "unheard_of") {
			s.control.Publish(broker.Event{Kind: broker.EventKind(name), At: eventTime})
		}
		for _, name := range names {
			seq++
			if got, want := c.hear(), fmt.Sprintf(`{"kind":"event","event":%q,"seq":%d,`, name, seq); !strings.HasPrefix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	subscribers(0)
	wants()
	for _, step := range []struct {
		request string
		wants   []string
	}{
		{`"subscribe","params":{"events":["agent_online","message_acked"]}`, []string{"message_acked", "agent_online"}},
		{`"subscribe","params":{"events":["agent_offline"]}`, []string{"message_acked", "agent_online", "agent_offline"}},
		{`"unsubscribe","params":{"events":["agent_online","auth_failed"]}`, []string{"message_acked", "agent_offline"}},
		{`"subscribe","params":{"events":[]}`, []string{"message_acked", "agent_offline"}},
		{`"subscribe","params":{"events":null}`, EventNames()},
		{`"unsubscribe"`, nil},
		{`"subscribe"`, EventNames()},
	} {
		if got := c.ask(`{"id":2,"method":` + step.request + `}`); got != `{"kind":"reply","id":2,"result":{"type":"ok"}}` {
			t.Fatalf("%s: %s", step.request, got)
		}
		wants(step.wants...)
		subscribers(min(1, len(step.wants)))
	}
	other.ask(`{"id":2,"method":"subscribe"}`)
	subscribers(2)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the subscription ends", func() bool { return s.control.Stats().Subscribers == 1 })
}

// A client that does not read loses the oldest events beyond 1024, and is told
// how many; nobody else loses anything.
func TestControlLag(t *testing.T) {
	s := newControlSocket(t, nil)
	stalled, reading := s.greet(), s.greet()
	stalled.ask(`{"id":2,"method":"subscribe"}`)
	reading.ask(`{"id":2,"method":"subscribe"}`)
	const n, wave = 10_000, 500
	for i := 1; i <= n; i++ {
		s.control.Publish(accepted(i))
		if i%wave == 0 { // a reader that keeps up
			for seq := i - wave + 1; seq <= i; seq++ {
				if got, want := reading.hear(), fmt.Sprintf(`{"kind":"event","event":"message_accepted","seq":%d,"ts":"2026-11-30T04:13:00.272Z","id":"%d"`, seq, seq); !strings.HasPrefix(got, want) {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
		}
	}
	type heard struct {
		Event       string
		Seq, Missed int
		ID          string
	}
	hear := func() (e heard) {
		t.Helper()
		if err := json.Unmarshal([]byte(stalled.hear()), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	// First come those that were on their way when it stalled.
	before := 0
	e := hear()
	for ; e.Event == "message_accepted"; e = hear() {
		if before++; e.Seq != before || e.ID != fmt.Sprint(before) {
			t.Fatalf("event %d is %+v", before, e)
		}
	}
	missed := n - before - maxBehind
	if want := (heard{Event: "lagged", Seq: n - maxBehind, Missed: missed}); e != want {
		t.Fatalf("after %d: got %+v, want %+v", before, e, want)
	}
	for i := n - maxBehind + 1; i <= n; i++ {
		if got, want := hear(), (heard{Event: "message_accepted", Seq: i, ID: fmt.Sprint(i)}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	if got, want := s.log.String(), fmt.Sprintf(`msg="a client fell %d events behind"`, missed); strings.Count(got, "events behind") != 1 || !strings.Contains(got, want) {
		t.Errorf("the log lacks %s:\n%s", want, got)
	}
	if got := s.control.Stats().Lost; got != uint64(missed) {
		t.Errorf("counted %d, want %d", got, missed)
	}
	// From then on all is as before.
	s.control.Publish(accepted(n + 1))
	if got, want := hear(), (heard{Event: "message_accepted", Seq: n + 1, ID: fmt.Sprint(n + 1)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Lost events are told of also when the client goes, or no longer wants any.
func TestControlLagUntold(t *testing.T) {
	for name, end := range map[string]func(*outbox){
		"unsubscribed": func(o *outbox) { o.unsubscribe(EventNames(), nil) },
		"gone":         func(o *outbox) { o.wrote(nil, false, errGone) },
	} {
		var subscribers atomic.Int64
		var lost []uint64
		o := newOutbox(&subscribers, func(missed uint64) { lost = append(lost, missed) })
		o.subscribe(EventNames(), nil)
		for i := range maxBehind + 3 {
			o.publish(event{Event: accepted(i)})
		}
		end(o)
		o.publish(event{Event: accepted(0)})
		if diff := cmp.Diff([]uint64{3}, lost); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// No more is begun for a client than it reads.
func TestControlBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(new(atomic.Int64), nil)
		begun := 0
		var wait sync.WaitGroup
		wait.Go(func() {
			for o.begin() {
				begun++
			}
		})
		holds := func(want int) {
			t.Helper()
			if synctest.Wait(); begun != want {
				t.Errorf("%d began, want %d", begun, want)
			}
		}
		holds(maxPending)
		o.skip()
		holds(maxPending + 1)
		long := make([]byte, maxUnread+1)
		o.reply(long)
		o.skip()
		holds(maxPending + 1)
		line, isReply, more := o.next()
		if !isReply || !more || len(line) != len(long) {
			t.Errorf("%d bytes, %t, %t", len(line), isReply, more)
		}
		o.wrote(line, true, nil)
		holds(maxPending + 3)
		o.halt()
		wait.Wait()
		if o.begin() {
			t.Error("one more began after the end")
		}
	})
}

// BenchmarkPublish is what an event costs the broker: with nobody there, with
// one that reads, and with one that does not.
func BenchmarkPublish(b *testing.B) {
	for _, clients := range []string{"none", "reading", "stalled"} {
		b.Run(clients, func(b *testing.B) {
			s := newControlSocket(b, nil)
			if clients != "none" {
				c := s.greet()
				c.ask(`{"id":2,"method":"subscribe"}`)
				if clients == "reading" {
					go func() {
						for {
							if _, err := c.r.ReadSlice('\n'); err != nil {
								return
							}
						}
					}()
				}
			}
			e := accepted(1)
			for b.Loop() {
				s.control.Publish(e)
			}
		})
	}
}
