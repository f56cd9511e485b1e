//go:build !windows

package client_test

import (
	"testing"

	"github.com/agent-relay/agent-relay/client"
)

// BenchmarkSendSubscribed is what sends through the control socket cost with
// nobody subscribed to events, with one who reads them, and with one who does
// not.
func BenchmarkSendSubscribed(b *testing.B) {
	for _, subscriber := range []string{"none", "reading", "stalled"} {
		b.Run(subscriber, func(b *testing.B) {
			r := startRelay(b)
			_, path, _ := r.serveControl(b, nil)
			c := dialControl(b, path)
			if _, err := c.AddAgent(b.Context(), "beta", client.AgentChange{}); err != nil {
				b.Fatal(err)
			}
			if subscriber != "none" {
				s, err := c.Subscribe(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				if subscriber == "reading" {
					go func() {
						for {
							if _, err := s.Next(b.Context()); err != nil {
								return
							}
						}
					}()
				}
			}
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				// Sends of one connection are stored one after the other.
				own, err := client.DialControl(b.Context(), path)
				if err != nil {
					b.Error(err)
					return
				}
				defer own.Close()
				for pb.Next() {
					if _, err := own.Send(b.Context(), "alpha", client.Outgoing{To: "beta"}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
