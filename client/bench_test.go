package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// fill sends n messages to an agent, several at a time.
func fill(b *testing.B, from *client.Client, to string, n int) {
	b.Helper()
	var sending sync.WaitGroup
	var sent atomic.Int64
	for range 16 {
		sending.Go(func() {
			for sent.Add(1) <= int64(n) {
				if _, err := from.Send(b.Context(), client.Outgoing{To: to, Body: client.TextBody("hello")}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// BenchmarkMessages reads an inbox of 1,000 messages from its beginning. The
// allocations are the client's and the broker's.
func BenchmarkMessages(b *testing.B) {
	const messages = 1000
	r := startRelay(b)
	beta := r.agent(b, "beta")
	fill(b, r.agent(b, "alpha"), "beta", messages)
	b.ReportAllocs()
	for b.Loop() {
		read := 0
		for _, err := range beta.Messages(b.Context(), client.MessagesOptions{Limit: agentrelay.MaxLimit}) {
			if err != nil {
				b.Fatal(err)
			}
			if read++; read == messages {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)*messages/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkWork works off 200 messages with a handler that does nothing.
func BenchmarkWork(b *testing.B) {
	const messages = 200
	for _, concurrency := range []int{1, 4, 16} {
		b.Run(fmt.Sprint("concurrency=", concurrency), func(b *testing.B) {
			r := startRelay(b)
			alpha, worker := r.agent(b, "alpha"), r.agent(b, "worker")
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				fill(b, alpha, "worker", messages)
				b.StartTimer()
				ctx, stop := context.WithCancel(b.Context())
				var handled atomic.Int32
				if err := worker.Work(ctx, client.WorkerOptions{
					Concurrency: concurrency,
					OnError:     func(err error) { b.Error(err) },
					Handle: func(context.Context, agentrelay.Message) error {
						if handled.Add(1) == messages {
							stop()
						}
						return nil
					},
				}); err != nil {
					b.Fatal(err)
				}
				stop()
			}
			b.ReportMetric(float64(b.N)*messages/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkSend sends to a broker, one message after the other and from many
// goroutines. The allocations are the client's and the broker's.
func BenchmarkSend(b *testing.B) {
	message := client.Outgoing{To: "beta", Body: client.TextBody(strings.Repeat("x", 200))}
	b.Run("in turn", func(b *testing.B) {
		r := startRelay(b)
		alpha := r.agent(b, "alpha")
		r.agent(b, "beta")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := alpha.Send(b.Context(), message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("at the same time", func(b *testing.B) {
		r := startRelay(b)
		alpha := r.agent(b, "alpha")
		r.agent(b, "beta")
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := alpha.Send(b.Context(), message); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// accepting answers as a broker does that has stored the message m.
type accepting struct{}

func (accepting) RoundTrip(q *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(`{"accepted":true,"id":"m","duplicate":false,"recipient":{"online":true,"lastSeen":1755250000.5}}`)),
	}, nil
}

// BenchmarkSendAlone is the client's own part of a send: all but the network.
func BenchmarkSendAlone(b *testing.B) {
	alpha, err := client.New(client.Options{Agent: "alpha", Secret: secret, Transport: accepting{}})
	if err != nil {
		b.Fatal(err)
	}
	message := client.Outgoing{ID: "m", To: "beta", Body: client.TextBody(strings.Repeat("x", 200))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := alpha.Send(b.Context(), message); err != nil {
			b.Fatal(err)
		}
	}
}
