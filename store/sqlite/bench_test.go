package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

func openBench(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(context.Background(), Options{Dir: dir, Options: roomy})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func benchMessage(id string) agentrelay.Message {
	return agentrelay.Message{
		ID: id, From: "alpha", To: "beta", Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage,
		Body: []byte(`{"text":"hello, how are you today?"}`),
	}
}

// roomy has a quota that no benchmark reaches.
var roomy = store.Options{MaxQueued: 1 << 30, MaxQueuedBytes: 1 << 40}

// fill stores n messages for beta, many in one transaction.
func fill(b *testing.B, s *Store, n int) {
	b.Helper()
	ctx := context.Background()
	if err := s.Register(ctx, "beta"); err != nil {
		b.Fatal(err)
	}
	for done := 0; done < n; {
		upTo := min(done+10_000, n)
		if err := s.write(ctx, func(t *tx) error {
			for i := done; i < upTo; i++ {
				m := benchMessage("m" + strconv.Itoa(i))
				sum := m.Fingerprint()
				if _, err := t.enqueue(m, sum[:]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		done = upTo
	}
}

// concurrently runs do b.N times in all, from so many callers at once.
func concurrently(b *testing.B, callers int, do func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	errs := make(chan error, callers)
	for range callers {
		go func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnqueue is one durable send; ns/op falls with the callers that
// share a commit.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			s := openBench(b, b.TempDir())
			fill(b, s, 0)
			b.ResetTimer()
			concurrently(b, callers, func() error {
				_, err := s.Enqueue(ctx, benchMessage(store.NewID()))
				return err
			})
		})
	}
}

// stored are the sizes whose costs are to be alike.
var stored = []int{1_000, 100_000, 1_000_000}

// filled returns a directory with n messages, made once for all benchmarks.
func filled(b *testing.B, n int) string {
	b.Helper()
	dir := filepath.Join(benchDir(b), strconv.Itoa(n))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	s, err := Open(context.Background(), Options{Dir: dir, Options: roomy})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, s, n)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return dir
}

var sharedDir string

func benchDir(b *testing.B) string {
	b.Helper()
	if sharedDir == "" {
		dir, err := os.MkdirTemp("", "agent-relay-bench-")
		if err != nil {
			b.Fatal(err)
		}
		sharedDir = dir
	}
	return sharedDir
}

// BenchmarkPoll reads a page of 50 from the middle of an inbox.
func BenchmarkPoll(b *testing.B) {
	for _, n := range stored {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			s := openBench(b, filled(b, n))
			since := agentrelay.Cursor{Tag: agentrelay.CursorTag(s.epoch, "beta"), Position: int64(n / 2)}.String()
			for b.Loop() {
				page, err := s.Poll(context.Background(), store.PollQuery{Agent: "beta", Since: since, Limit: 50, MaxBytes: agentrelay.MaxPageBytes})
				if err != nil || len(page.Messages) != 50 {
					b.Fatal(len(page.Messages), err)
				}
			}
		})
	}
}

// BenchmarkStats counts what is queued.
func BenchmarkStats(b *testing.B) {
	for _, n := range stored {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			s := openBench(b, filled(b, n))
			for b.Loop() {
				stats, err := s.Stats(context.Background())
				if err != nil || stats.Queued != n {
					b.Fatal(stats, err)
				}
			}
		})
	}
}

// BenchmarkOpen is the start-up of a store, and its end.
func BenchmarkOpen(b *testing.B) {
	for _, n := range append([]int{0}, stored...) {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			dir := filled(b, n)
			var opening time.Duration
			for b.Loop() {
				began := time.Now()
				s, err := Open(context.Background(), Options{Dir: dir, Options: roomy})
				if err != nil {
					b.Fatal(err)
				}
				opening += time.Since(began)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(opening.Nanoseconds())/float64(b.N), "open-ns/op")
		})
	}
}

// BenchmarkPullSettle leases one message and completes it.
func BenchmarkPullSettle(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			s := openBench(b, b.TempDir())
			fill(b, s, b.N)
			b.ResetTimer()
			concurrently(b, callers, func() error {
				leased, err := s.Lease(ctx, store.LeaseRequest{Agent: "beta", Limit: 1, MaxBytes: agentrelay.MaxPageBytes, For: time.Minute})
				if err != nil || len(leased) != 1 {
					return fmt.Errorf("leased %d: %w", len(leased), err)
				}
				_, err = s.Settle(ctx, store.Settlement{
					Agent: "beta", ID: leased[0].ID, LeaseID: leased[0].LeaseID, Outcome: agentrelay.OutcomeCompleted,
				})
				return err
			})
		})
	}
}
