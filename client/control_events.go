package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Event is something that happened in a broker (PROTOCOL.md, "Events"). It
// never holds a body. Members that its Name does not have are empty.
type Event struct {
	Name string `json:"event"`
	// Seq counts the events of a subscription, lost ones included.
	Seq uint64    `json:"seq"`
	TS  time.Time `json:"ts"`

	ID     string `json:"id,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Reason string `json:"reason,omitempty"`
	Hook   string `json:"hook,omitempty"`
	Script string `json:"script,omitempty"`
	// Missed is how many events were lost here, of the name "lagged".
	Missed uint64 `json:"missed,omitempty"`

	// JSON is the event as the broker wrote it.
	JSON json.RawMessage `json:"-"`
}

// Subscription is a connection on which events come.
type Subscription struct{ conn *controlConn }

// Subscribe asks for the events of the given names; for all if there are none.
// Those come that happen after it has returned. It makes a connection of its
// own, so that a reader who is slow hinders no call; one who is more than 1024
// events behind loses the oldest, and gets an event "lagged".
func (c *Control) Subscribe(ctx context.Context, names ...string) (*Subscription, error) {
	conn, _, err := dialControl(ctx, c.path)
	if err != nil {
		return nil, err
	}
	var params any
	if len(names) > 0 {
		params = map[string][]string{"events": names}
	}
	if err := conn.ask(ctx, helloID+1, "subscribe", params, "ok", nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Subscription{conn}, nil
}

// Next waits for the next event. When ctx ends meanwhile, the subscription is
// of no more use.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	if ctx.Err() != nil {
		return Event{}, ctx.Err()
	}
	interrupted := interruptible(ctx, s.conn.SetDeadline)
	for {
		line, err := s.conn.next()
		if err == nil && line.event == nil {
			continue // nothing was asked
		}
		if interrupted() && err != nil {
			return Event{}, ctx.Err()
		}
		if err != nil {
			return Event{}, err
		}
		e := Event{JSON: line.event}
		if json.Unmarshal(line.event, &e) != nil {
			return Event{}, s.conn.stranger()
		}
		return e, nil
	}
}

// Close ends the subscription.
func (s *Subscription) Close() error { return s.conn.Close() }

// Events returns the events of the given names, or all, as they happen from
// the first step of the iteration on; see Subscribe. The iteration ends with
// an error: that of ctx, or what became of the broker.
func (c *Control) Events(ctx context.Context, names ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s, err := c.Subscribe(ctx, names...)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer s.Close()
		for {
			e, err := s.Next(ctx)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
