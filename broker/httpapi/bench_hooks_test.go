package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/hooks"
)

// BenchmarkSendHooks measures sends of 16 clients where no hook is installed,
// and where a trivial one is: advisory, which nobody waits for and which is
// dropped when too many wait, and enforcing.
func BenchmarkSendHooks(b *testing.B) {
	for _, c := range []struct {
		name               string
		installed, enforce bool
	}{{"none", false, false}, {"advisory", true, false}, {"enforce", true, true}} {
		b.Run("hook="+c.name, func(b *testing.B) {
			dir := b.TempDir()
			if c.installed {
				script := filepath.Join(dir, "pre-message", "nothing")
				if err := os.Mkdir(filepath.Dir(script), 0o700); err != nil {
					b.Fatal(err)
				}
				if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
					b.Fatal(err)
				}
			}
			d, err := hooks.New(hooks.Options{Dir: dir})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					b.Error(err)
				}
				b.ReportMetric(float64(d.Stats().Dropped)/float64(b.N), "dropped/op")
			}()
			r := newRelay(b, setup{boundaries: broker.NewBoundaries(d, c.enforce)})
			r.agent("alpha")
			r.agent("beta")
			raw := r.render(call{
				agent: "alpha", method: http.MethodPost, target: "/messages",
				body: `{"to":"beta","body":{"text":"hello, how are you today?"}}`,
			})
			r.loadN(b, 16, func(c *leanClient) error {
				_, err := c.ask(raw, http.StatusCreated)
				return err
			})
		})
	}
}
