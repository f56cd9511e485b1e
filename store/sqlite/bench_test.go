package sqlite_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

func open(tb testing.TB, o store.Options) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: tb.TempDir(), Options: o})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func message(id, to string) agentrelay.Message {
	return agentrelay.Message{
		ID: id, From: "alpha", To: to, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage,
		Body: []byte(`{"text":"hello, how are you today?"}`),
	}
}

func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			s := open(b, store.Options{})
			if err := s.Register(ctx, "beta"); err != nil {
				b.Fatal(err)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			errs := make(chan error, callers)
			b.ResetTimer()
			for range callers {
				go func() {
					for left.Add(-1) >= 0 {
						if _, err := s.Enqueue(ctx, message(store.NewID(), "beta")); err != nil {
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
		})
	}
}

// fill stores n messages for beta.
func fill(tb testing.TB, s *sqlite.Store, n int) {
	tb.Helper()
	ctx := context.Background()
	if err := s.Register(ctx, "beta"); err != nil {
		tb.Fatal(err)
	}
	var next atomic.Int64
	errs := make(chan error, 256)
	for range cap(errs) {
		go func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := s.Enqueue(ctx, message("m"+strconv.FormatInt(i, 10), "beta")); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			tb.Fatal(err)
		}
	}
}
