package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// openObserved opens a store and notes what it reports, until a call returns.
func openObserved(t *testing.T) (s *Store, events *[]string, commits *[]store.Commit) {
	t.Helper()
	events, commits = new([]string), new([]store.Commit)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Options: store.Options{
		Observe: func(list []store.Event) {
			for _, e := range list {
				*events = append(*events, fmt.Sprint(e.Kind, " ", e.ID))
			}
		},
		Committed: func(c store.Commit) { *commits = append(*commits, c) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(t.Context(), "beta"); err != nil {
		t.Fatal(err)
	}
	return s, events, commits
}

func wantReported(t *testing.T, got *[]string, want ...string) {
	t.Helper()
	slices.Sort(*got)
	if !slices.Equal(*got, want) {
		t.Errorf("reported was %q, want %q", *got, want)
	}
	*got = nil
}

// TestRolledBackIsNotReported runs operations in one batch of which one fails
// after it reported a step: the first run is rolled back as a whole, the
// second in part.
func TestRolledBackIsNotReported(t *testing.T) {
	ctx := t.Context()
	s, events, commits := openObserved(t)
	*commits = nil
	enter, held := hold(s)
	good, bad, alsoGood := make(chan error), make(chan error), make(chan error)
	send := func(id string, result chan error) {
		_, err := s.Enqueue(ctx, messageTo("beta", id, 10))
		result <- err
	}
	runs := 0
	go send("before", good)
	waitQueued(s, 1)
	go func() {
		bad <- s.send(ctx, func(t *tx) error {
			runs++
			m := messageTo("beta", "half", 10)
			sum := m.Fingerprint()
			if _, err := t.insert(m, sum[:], 77, false); err != nil {
				return err
			}
			return errors.New("after writing")
		})
	}()
	waitQueued(s, 2)
	go send("behind", alsoGood)
	waitQueued(s, 3)
	close(enter)
	if err := errors.Join(<-held, <-good, <-alsoGood); err != nil {
		t.Error(err)
	}
	if err := <-bad; err == nil {
		t.Error("the failing operation did not fail")
	}
	if runs != 2 {
		t.Errorf("the failing operation ran %d times, want once without and once with a savepoint", runs)
	}
	wantReported(t, events, "accepted before", "accepted behind")
	if len(*commits) != 2 || (*commits)[0].Operations != 1 || (*commits)[1].Operations != 3 || (*commits)[1].Took <= 0 {
		t.Errorf("commits were %+v", *commits)
	}
}

// TestReportBeforeFailingWithoutWriting shows that a step is not kept because
// nothing happened to be written before the failure.
func TestReportBeforeFailingWithoutWriting(t *testing.T) {
	s, events, _ := openObserved(t)
	err := s.write(t.Context(), func(t *tx) error {
		m := messageTo("beta", "m", 10)
		t.report(store.EventDone, &m)
		return errors.New("without writing")
	})
	if err == nil || err.Error() != "without writing" {
		t.Errorf("the operation answers %v", err)
	}
	wantReported(t, events)
}

// TestFullIsNotReported fails a batch for lack of space: what is run again
// without the sends is reported once, the sends never.
func TestFullIsNotReported(t *testing.T) {
	ctx := t.Context()
	s, events, commits := openObserved(t)
	if _, err := s.Enqueue(ctx, messageTo("beta", "small", 10)); err != nil {
		t.Fatal(err)
	}
	wantReported(t, events, "accepted small")
	limitPages(t, s, 60)
	enter, held := hold(s)
	big, delivered := make(chan error), make(chan error)
	go func() { delivered <- s.Delivered(ctx, []string{"small"}, time.Now()) }()
	waitQueued(s, 1)
	go func() {
		_, err := s.Enqueue(ctx, messageTo("beta", "big", 900_000))
		big <- err
	}()
	waitQueued(s, 2)
	*commits = nil
	close(enter)
	if err := errors.Join(<-held, <-delivered); err != nil {
		t.Fatal(err)
	}
	if err := <-big; !errors.Is(err, agentrelay.ErrStorageFull) {
		t.Errorf("the send answers %v", err)
	}
	wantReported(t, events, "delivered small")
	if len(*commits) != 2 || (*commits)[1].Operations != 1 {
		t.Errorf("commits were %+v", *commits)
	}
}

// TestFailedCommitIsNotReported shows that what may not be on disk is not
// reported.
func TestFailedCommitIsNotReported(t *testing.T) {
	ctx := t.Context()
	s, events, commits := openObserved(t)
	if _, err := s.writer.conn.ExecContext(ctx, `PRAGMA query_only = ON`); err != nil {
		t.Fatal(err)
	}
	*commits = nil
	if _, err := s.Enqueue(ctx, messageTo("beta", "lost", 10)); err == nil {
		t.Fatal("a write that failed was reported as done")
	}
	wantReported(t, events)
	if len(*commits) != 0 {
		t.Errorf("commits were %+v", *commits)
	}
}

// TestObservedBeforeAnswered keeps an observer from returning: until it does,
// the call does not either.
func TestObservedBeforeAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observing, enter := make(chan struct{}), make(chan struct{})
		s, err := Open(t.Context(), Options{Dir: t.TempDir(), Options: store.Options{Observe: func([]store.Event) {
			close(observing)
			<-enter
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Register(t.Context(), "beta"); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := s.Enqueue(t.Context(), messageTo("beta", "m", 10))
			answered <- err
		}()
		<-observing
		synctest.Wait()
		select {
		case err := <-answered:
			t.Errorf("the call was answered (%v) before its events were observed", err)
			answered <- nil
		default:
		}
		close(enter)
		if err := errors.Join(<-answered, s.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestStatsErrors(t *testing.T) {
	s, _, _ := openObserved(t)
	if stats, err := s.Stats(t.Context()); err != nil || stats.DatabaseBytes == 0 || stats.LogBytes == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Stats(ended); err == nil {
		t.Error("a count whose time is over has an answer")
	}
	if n, err := fileSize(s.path + "-none"); n != 0 || err != nil {
		t.Errorf("a file that is not there has size %d, %v", n, err)
	}
	if _, err := fileSize(s.path + "\x00"); err == nil {
		t.Error("a size that cannot be told is told")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stats(t.Context()); err == nil {
		t.Error("a closed store has statistics")
	}
}
