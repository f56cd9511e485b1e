package broker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func TestOpenNeedsTheRegistry(t *testing.T) {
	f := newFixture(t)
	cause := errors.New("cannot read")
	f.store.fail("Agents", cause)
	if _, err := Open(ctx, Options{Store: f.store, Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// What is left out has the defaults of a real broker.
func TestDefaults(t *testing.T) {
	f := newFixture(t)
	_, err := f.Register(ctx, "ben")
	f.must(err)
	b, err := Open(ctx, Options{Store: f.store, Hub: NewHub(), Heartbeat: time.Minute, TTL: time.Hour, Log: slog.New(slog.DiscardHandler)})
	f.must(err)
	sent, err := b.Send(ctx, message(""))
	f.must(err)
	if !agentrelay.ValidID(sent.ID) {
		t.Errorf("the broker made the id %q", sent.ID)
	}
	self, err := b.Register(ctx, "new")
	f.must(err)
	if age := time.Since(self.LastSeen).Abs(); age > time.Minute {
		t.Errorf("an agent that just registered was seen %v ago", age)
	}
}

// A store that fails ends the broker, with the reason.
func TestRunEndsWithTheStore(t *testing.T) {
	f := newFixture(t)
	cause := errors.New("fsync failed")
	f.store.fail("Err", cause)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	close(f.store.failed)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("the broker ended with %v", err)
	}
}

func TestRegisterFails(t *testing.T) {
	f := newFixture(t)
	cause := errors.New("cannot write")
	f.store.fail("Register", cause)
	if _, err := f.Register(ctx, "ann"); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if len(f.Peers()) != 0 {
		t.Errorf("an agent that was not stored is listed: %v", f.Peers())
	}
	f.store.fail("Register", nil)
	for range 3 {
		self, err := f.Register(ctx, "ann")
		f.must(err)
		if !self.Online || !self.LastSeen.Equal(start) {
			t.Errorf("registered as %+v", self)
		}
	}
	if n := f.store.count("Register"); n != 2 {
		t.Errorf("the store was asked %d times, want once more", n)
	}
}

// A write that a client asked for is made even if the client is gone.
func TestWritesOutliveTheRequest(t *testing.T) {
	f := newFixture(t)
	f.send()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := f.Send(gone, message("m"))
	f.must(err)
	if _, err := f.Pull(gone, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: time.Minute}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a pull for nobody returns %v", err)
	}
	_, err = f.Acknowledge(gone, store.Acknowledgement{Agent: "ben", ID: "m"})
	f.must(err)
	list, err := f.Messages(ctx, "ann", []string{"m"})
	f.must(err)
	if list["m"].Status != agentrelay.StatusDone {
		t.Errorf("the message is %s", list["m"].Status)
	}
}

// The store is asked once a second at most, and a passing fault passes.
func TestHealthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.must(f.Health(ctx))
		cause := errors.New("cannot write")
		f.store.fail("Probe", cause)
		time.Sleep(probeEvery - 1) // the bubble's time
		f.must(f.Health(ctx))
		time.Sleep(time.Nanosecond)
		for range 3 {
			if err := f.Health(ctx); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		}
		f.store.fail("Probe", nil)
		if err := f.Health(ctx); err == nil {
			t.Error("the answer was not shared")
		}
		time.Sleep(probeEvery)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		f.must(f.Health(gone)) // others share it
		if n := f.store.count("Probe"); n != 3 {
			t.Errorf("the store was asked %d times, want 3", n)
		}
	})
}
