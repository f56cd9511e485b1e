package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// notes is an Observer that notes what it is told.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) AuthFailed(reason agentrelay.Reason) { n.note("auth failed: %s", reason) }
func (n *notes) Locked()                             { n.note("locked") }
func (n *notes) Duplicate()                          { n.note("duplicate") }
func (n *notes) Conflict()                           { n.note("conflict") }
func (n *notes) Waiting(more int)                    { n.note("waiting %+d", more) }

// want checks what was noted since the last look.
func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.list, want) {
		t.Errorf("the observer was told %q, want %q", n.list, want)
	}
	n.list = nil
}

func newObserved(t *testing.T) (*fixture, *notes) {
	f, n := newFixture(t), &notes{}
	f.observer = n
	return f, n
}

func TestRefusedCredentialsAreObserved(t *testing.T) {
	f, told := newObserved(t)
	verify := func(c Credentials) error {
		challenge, err := f.Challenge(c)
		if err == nil {
			_, err = challenge.Verify("GET", "/peers", nil)
		}
		return err
	}
	signed := func(agent, timestamp string) Credentials {
		return Credentials{
			Agent: agent, Timestamp: timestamp, Address: "192.0.2.1",
			Signature: agentrelay.Sign(f.options.Secret, "GET", "/peers", timestamp, nil),
		}
	}
	now, late := fmt.Sprint(start.Unix()), fmt.Sprint(start.Unix()-301)
	bad := signed("ann", now)
	bad.Signature = bad.Signature[1:] + "0"
	for _, c := range []struct {
		given Credentials
		want  agentrelay.Reason
	}{
		{Credentials{}, agentrelay.ReasonMissingHeaders},
		{signed("a b", now), agentrelay.ReasonBadAgentName},
		{signed("ann", "soon"), agentrelay.ReasonBadTimestamp},
		{bad, agentrelay.ReasonBadSignature},
		{signed("ann", late), agentrelay.ReasonTimestampSkew},
	} {
		if err := verify(c.given); err == nil {
			t.Errorf("%s was accepted", c.want)
		}
		told.want(t, "auth failed: "+string(c.want))
	}
	if err := verify(signed("ann", now)); err != nil {
		t.Error(err)
	}
	told.want(t)
	for range 5 {
		_ = verify(bad)
	}
	told.want(t, slices.Repeat([]string{"auth failed: bad_signature"}, 5)...)
	if err := verify(signed("ann", now)); !errors.Is(err, agentrelay.ErrLocked) {
		t.Errorf("got %v", err)
	}
	told.want(t, "locked")
}

func TestKnownIDsAreObserved(t *testing.T) {
	f, told := newObserved(t)
	f.send("m1")
	told.want(t)
	f.send("m1")
	told.want(t, "duplicate")
	other := message("m1")
	other.Body = []byte(`1`)
	if _, err := f.Send(ctx, other); !errors.Is(err, agentrelay.ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	told.want(t, "conflict")
	unknown := message("m2")
	unknown.To = "nobody"
	if _, err := f.Send(ctx, unknown); !errors.Is(err, agentrelay.ErrNoSuchAgent) {
		t.Errorf("got %v", err)
	}
	told.want(t)
}

func TestWaitingIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := newObserved(t)
		_, err := f.Poll(ctx, f.inbox(), 0)
		f.must(err)
		told.want(t) // it did not wait
		for _, c := range []struct {
			how  string
			wait func(context.Context) error
			stop func(cancel func())
		}{
			{"the time is up", func(ctx context.Context) error { _, err := f.Poll(ctx, f.inbox(), time.Second); return err }, func(func()) { time.Sleep(time.Second) }},
			{"the client goes", func(ctx context.Context) error { _, err := f.Poll(ctx, f.inbox(), time.Second); return err }, func(cancel func()) { cancel() }},
			{"something arrives", func(ctx context.Context) error {
				_, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}, time.Second)
				return err
			}, func(func()) { f.send("m1") }},
			{"the broker drains", func(ctx context.Context) error { _, err := f.Poll(ctx, f.inbox(), time.Second); return err }, func(func()) { f.Drain() }},
		} {
			waiting, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- c.wait(waiting) }()
			synctest.Wait()
			told.want(t, "waiting +1")
			c.stop(cancel)
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", c.how, err)
			}
			cancel()
			told.want(t, "waiting -1")
		}
	})
}

// Stats are shared for some seconds, and for longer where they cost more.
func TestStatsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		get := func() (store.Stats, error) { return f.Stats(ctx) }
		f.send("m1", "m2")
		first, err := get()
		f.must(err)
		if first.Queued != 2 || !first.OldestQueued.Equal(start.Truncate(time.Millisecond)) || first.DatabaseBytes == 0 {
			t.Errorf("got %+v", first)
		}
		f.send("m3")
		time.Sleep(countEvery - time.Millisecond)
		if again, err := get(); err != nil || again != first {
			t.Errorf("got %+v, %v", again, err)
		}
		time.Sleep(time.Millisecond)
		if again, err := get(); err != nil || again.Queued != 3 {
			t.Errorf("got %+v, %v", again, err)
		}
		if n := f.store.count("Stats"); n != 2 {
			t.Errorf("the store was asked %d times, want twice", n)
		}
		cause := errors.New("cannot read")
		f.store.fail("Stats", cause)
		f.store.takes = time.Second
		time.Sleep(countEvery)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for range 2 {
			if _, err := f.Stats(ended); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		}
		f.store.fail("Stats", nil)
		time.Sleep(countShare*time.Second - time.Millisecond)
		if _, err := get(); !errors.Is(err, cause) {
			t.Errorf("what took a second is asked for again too soon: %v", err)
		}
		time.Sleep(time.Millisecond)
		f.store.takes = 0
		if _, err := f.Stats(ended); err != nil { // the answer is for others, too
			t.Error(err)
		}
	})
}
