package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// swept returns when the store was swept, since began, and forgets it.
func (f *fixture) swept(began time.Time) (list []time.Duration) {
	synctest.Wait()
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, at := range f.store.sweeps {
		list = append(list, at.Sub(began))
	}
	f.store.sweeps = nil
	return list
}

func (f *fixture) wantSwept(began time.Time, want ...time.Duration) {
	f.t.Helper()
	got := f.swept(began)
	if len(got) != len(want) {
		f.t.Fatalf("swept after %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			f.t.Fatalf("swept after %v, want %v", got, want)
		}
	}
}

func TestSweepComesWhenItWasToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.store.next = 10 * time.Second
		began := time.Now()
		f.run()
		f.wantSwept(began, 0)
		time.Sleep(25 * time.Second) // the bubble's time
		f.wantSwept(began, 10*time.Second, 20*time.Second)
		f.store.fail("Sweep", errors.New("cannot write"))
		time.Sleep(7 * time.Second)
		f.wantSwept(began, 30*time.Second, 31*time.Second, 32*time.Second)
		f.store.fail("Sweep", nil)
		time.Sleep(2 * time.Second)
		f.wantSwept(began, 33*time.Second)
	})
}

// A lease that ends sooner than the next sweep brings it forward; one that
// ends later does not put it off.
func TestSweepComesWhenALeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.store.next = 20 * time.Second
		began := time.Now()
		f.run()
		f.send("m")
		f.wantSwept(began, 0)
		pull := func(d time.Duration) store.Leased {
			t.Helper()
			leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: d}, 0)
			f.must(err)
			if len(leased) != 1 {
				t.Fatal("there is nothing to pull")
			}
			return leased[0]
		}
		m := pull(5 * time.Second)
		time.Sleep(9 * time.Second) // the bubble's time
		f.wantSwept(began, 5*time.Second)
		// The next is to come at 25 s. Shortened, the lease ends at 12 s.
		_, err := f.Renew(ctx, store.Renewal{Agent: "ben", ID: m.ID, LeaseID: m.LeaseID, For: 3 * time.Second})
		f.must(err)
		time.Sleep(4 * time.Second)
		f.wantSwept(began, 12*time.Second)
		f.Return(ctx, "ben", []store.Leased{m})
		pull(time.Hour)
		time.Sleep(20 * time.Second)
		f.wantSwept(began, 32*time.Second)
	})
}

// With the store's own word: leases that run out are queued again, and wake.
func TestLeasesEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run()
		f.send("m1", "m2")
		for _, d := range []time.Duration{3 * time.Second, time.Minute} {
			leased, err := f.Pull(ctx, store.LeaseRequest{Agent: "ben", Limit: 1, MaxBytes: 1, For: d}, 0)
			f.must(err)
			if len(leased) != 1 {
				t.Fatal("there is nothing to pull")
			}
		}
		go func() {
			time.Sleep(2999 * time.Millisecond) // the bubble's time
			f.clock.Advance(3 * time.Second)
		}()
		began := time.Now()
		page, err := f.Poll(ctx, f.inbox(), time.Minute)
		f.must(err)
		if len(page.Messages) != 1 || page.Messages[0].ID != "m1" || page.Messages[0].Attempts != 1 {
			t.Errorf("got %+v", page.Messages)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the poll waited %v", took)
		}
	})
}
