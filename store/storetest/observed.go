package storetest

import (
	"fmt"
	"sync"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// observed is what Options.Observe was told.
type observed struct {
	mu sync.Mutex
	// arrivals counts, for each agent, the commits that put something to
	// deliver into its inbox.
	arrivals map[string]int
	// events are those since the last look.
	events []store.Event
}

func (o *observed) observe(events []store.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	woken := map[string]bool{}
	for _, e := range events {
		if e.Arrives() && !woken[e.To] {
			woken[e.To] = true
			o.arrivals[e.To]++
		}
	}
	o.events = append(o.events, events...)
}

// take returns the events since the last call.
func (o *observed) take() []store.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}

// wantWoken checks how many commits put something to deliver into agent's
// inbox. What a call does is observed before it returns.
func (f *fixture) wantWoken(agent string, n int) {
	f.testing.Helper()
	f.observed.mu.Lock()
	defer f.observed.mu.Unlock()
	if count := f.observed.arrivals[agent]; count != n {
		f.testing.Fatalf("%s was woken %d times, want %d", agent, count, n)
	}
}

// wantEvents checks what was observed since the last look.
func (f *fixture) wantEvents(want ...string) {
	f.testing.Helper()
	f.wantEqual("events", f.observedShort(), want)
}

// observedShort is what was observed since the last look, in short: kind and
// id, or the id of the message that a receipt is about. Each event must have
// the header of its message.
func (f *fixture) observedShort() []string {
	f.testing.Helper()
	var list []string
	for _, e := range f.observed.take() {
		m := f.find(e.To, e.ID)
		f.wantEqual("header of "+e.ID, header(e), header(store.Event{
			ID: m.ID, From: m.From, To: m.To, Type: m.Type, MessageKind: m.Kind, TS: m.TS,
		}))
		list = append(list, short(e, m))
	}
	return list
}

// header is what an event says of its message, whatever became of it.
func header(e store.Event) store.Event {
	return store.Event{ID: e.ID, From: e.From, To: e.To, Type: e.Type, MessageKind: e.MessageKind, TS: e.TS}
}

func short(e store.Event, m agentrelay.Message) string {
	what := e.ID
	if m.Type == agentrelay.TypeAck {
		what = "receipt of " + m.ReplyTo
	}
	text := fmt.Sprint(e.Kind, " ", what)
	if e.Leased {
		text += ", leased"
	}
	if e.GivenUp {
		text += ", given up"
	}
	if e.Cancelled {
		text += ", cancelled"
	}
	if e.Undelivered {
		text += ", undelivered"
	}
	return text
}

// forget passes over what was observed so far.
func (f *fixture) forget() { f.observed.take() }
