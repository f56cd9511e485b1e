package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/broker/connector"
)

// The broker is killed after a frame was written and before its result came:
// the connector gets one frame, and the sender one receipt, which says so.
func TestKillBetweenFrameAndResult(t *testing.T) {
	s := startChat(t)
	config := testConfig(t, chatLines(t, s.url))
	p := startBroker(t, config)
	ann := p.client("ann")
	register(t, ann)
	say(t, ann, "m1", `{"chat_id":"c","text":"one"}`)
	say(t, ann, "m2", `{"chat_id":"c","text":"two"}`)
	c := s.next(t)
	if o, ok := c.hear().(connector.Outbound); !ok || o.Action.Content != "one" {
		t.Fatalf("the relay says %+v", o)
	}
	p.kill()
	if f := c.hear(); f != nil {
		t.Errorf("the relay says %+v", f)
	}

	p = startBroker(t, config)
	ann = p.client("ann")
	first := arrivals(t, ann, 1)[0]
	if body := string(first.Body); first.ReplyTo != "m1" || !strings.Contains(body, `"status":"error"`) || !strings.Contains(body, `"ambiguous":true`) {
		t.Errorf("ann is told of %s: %s", first.ReplyTo, body)
	}
	c = s.next(t)
	o, ok := c.hear().(connector.Outbound)
	if !ok || o.Action.Content != "two" {
		t.Fatalf("the relay says %+v", o)
	}
	result := connector.OutboundResult{RequestID: o.RequestID, Result: connector.Result{Success: true, MessageID: "p2"}}
	if err := c.Send(c.ctx, result.AppendJSON(nil)); err != nil {
		t.Fatal(err)
	}
	if second := arrivals(t, ann, 2)[1]; second.ReplyTo != "m2" || string(second.Body) != `{"status":"ok","message_ids":["p2"]}` {
		t.Errorf("ann is told of %s: %s", second.ReplyTo, second.Body)
	}
}

// The broker is killed again and again while it stores a backlog of events, and
// what it did not acknowledge comes again: each event is stored once, in order.
func TestKillBetweenStoreAndAck(t *testing.T) {
	const events = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := startChat(t)
	config := testConfig(t, chatLines(t, s.url))
	kills := 0
	acked := 0
	for acked < events {
		p := startBroker(t, config)
		c := s.next(t)
		sent := make(chan struct{})
		go func(from int) {
			defer close(sent)
			for n := from; n < events; n++ {
				if c.Send(c.ctx, eventOf(n).AppendJSON(nil)) != nil {
					return
				}
			}
		}(acked)
		for until := acked + 50 + random.IntN(250); acked < min(until, events); acked++ {
			if f := c.hear(); f != (connector.InboundAck{BufferID: fmt.Sprint(acked)}) {
				t.Fatalf("the relay says %#v, want the ack of %d", f, acked)
			}
		}
		p.kill()
		kills++
		// What was acknowledged before the kill and not read yet counts, too.
		for f := c.hear(); f != nil; f = c.hear() {
			if f != (connector.InboundAck{BufferID: fmt.Sprint(acked)}) {
				t.Fatalf("the relay says %#v, want the ack of %d", f, acked)
			}
			acked++
		}
		<-sent
	}
	p := startBroker(t, config)
	for n, m := range arrivals(t, p.client("ben"), events) {
		if want := string(eventOf(n).Event); string(m.Body) != want || m.From != "chat" {
			t.Fatalf("event %d is %s from %s", n, m.Body, m.From)
		}
	}
	t.Logf("%d kills", kills)
}

// At the end the relay takes leave: it serves until the connector agrees.
func TestLeave(t *testing.T) {
	s := startChat(t)
	r := startRelay(t, relayOptions{lines: []string{chatLines(t, s.url)}})
	c := s.next(t)
	ann := r.registered("ann")
	say(t, ann, "m1", `{"chat_id":"c","text":"one"}`)
	o, ok := c.hear().(connector.Outbound)
	if !ok {
		t.Fatalf("the relay says %+v", o)
	}
	r.signal(os.Interrupt)
	if f, ok := c.hear().(connector.GoingIdle); !ok {
		t.Fatalf("the relay says %+v", f)
	}
	for _, f := range []connector.Frame{
		connector.OutboundResult{RequestID: o.RequestID, Result: connector.Result{Success: true}}, eventOf(1), connector.GoingIdleAck{},
	} {
		if err := c.Send(c.ctx, f.AppendJSON(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if f := c.hear(); f != (connector.InboundAck{BufferID: "1"}) {
		t.Errorf("the relay says %#v", f)
	}
	if f := c.hear(); f != nil {
		t.Errorf("the relay says %#v", f)
	}
	if status, _ := r.wait(); status != 0 {
		t.Errorf("the broker ends with %d", status)
	}
	again := startRelay(t, relayOptions{config: r.config})
	if m := arrivals(t, again.client("ann"), 1)[0]; string(m.Body) != `{"status":"ok"}` {
		t.Errorf("ann is told %s", m.Body)
	}
	arrivals(t, again.client("ben"), 1)
}
