package connector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// buffering is a connector that keeps events until they are acknowledged, and
// sends again after a reconnect what was not.
type buffering struct {
	mu      sync.Mutex
	unacked []int
	// faults are what should not have happened.
	faults []error
}

// serve sends all that is not acknowledged, and cuts the connection after some
// acknowledgements, or some frames, in the middle of one.
func (b *buffering) serve(p *peer, random *rand.Rand) error {
	if err := p.greet(); err != nil {
		return nil // cut by the test's end
	}
	b.mu.Lock()
	sending := slices.Clone(b.unacked)
	cutFrame, cutAck := random.IntN(400), random.IntN(400)
	b.mu.Unlock()
	if len(sending) < 300 {
		cutFrame, cutAck = len(sending), len(sending)
	}
	cutAck = min(cutAck, len(sending))
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i, n := range sending {
			frame := inbound(n, fmt.Sprint(n)) + "\n"
			if i == cutFrame {
				_ = p.write(websocket.MessageText, frame[:len(frame)/2])
				_ = p.CloseNow()
				return
			}
			if p.write(websocket.MessageText, frame) != nil {
				return
			}
		}
	}()
	defer func() { _ = p.CloseNow(); <-written }()
	for acked := 0; acked < cutAck; acked++ {
		raw, err := p.hear()
		if err != nil {
			return nil
		}
		b.ack(raw, sending[acked])
	}
	if cutAck < len(sending) {
		return nil
	}
	return p.untilGone() // where another frame would be one too many
}

// ack expects the acknowledgements of one connection in the order of its
// frames, one for each.
func (b *buffering) ack(raw string, want int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if raw != ackFrame(fmt.Sprint(want)) {
		b.faults = append(b.faults, fmt.Errorf("the relay says %s, want the ack of %d", raw, want))
		return
	}
	b.unacked = slices.DeleteFunc(b.unacked, func(n int) bool { return n == want })
}

// A backlog is sent again and again over connections that are cut anywhere;
// each event is stored once, in order, by a store that is idempotent.
func TestReplay(t *testing.T) {
	t.Parallel()
	const events = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := &buffering{}
	for n := range events {
		b.unacked = append(b.unacked, n)
	}
	c := startConnector(t, func(_ int, p *peer) error { return b.serve(p, random) })
	var mu sync.Mutex
	var stored []string
	seen := map[string]bool{}
	failing := 0
	r := runTo(t, c.url, Options{
		Limits: Limits{QueueFrames: 16, RetryFirst: 1, RetryMax: 1},
		Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
			mu.Lock()
			defer mu.Unlock()
			if failing++; failing%97 == 0 {
				return errors.New("the disk is full for a moment")
			}
			if !seen[f.BufferID] {
				seen[f.BufferID] = true
				stored = append(stored, f.BufferID)
			}
			return nil
		}},
	})
	r.until(t, "all is acknowledged", func(Status) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.unacked) == 0 || len(b.faults) > 0
	})
	if len(b.faults) > 0 {
		t.Error(b.faults)
	}
	mu.Lock()
	defer mu.Unlock()
	for n, id := range stored {
		if id != fmt.Sprint(n) {
			t.Fatalf("event %d is %s", n, id)
		}
	}
	if s := r.Status(); len(stored) != events || s.Connections < 3 {
		t.Errorf("%d events are stored; %+v", len(stored), s)
	}
}
