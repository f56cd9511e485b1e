package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// BenchmarkSend measures sends of concurrent clients, each with a connection
// of its own: into the store, and to the same server with no store behind it.
// Their ratio in one run is what the store costs.
func BenchmarkSend(b *testing.B) {
	for _, stored := range []bool{true, false} {
		for _, clients := range []int{1, 16, 64} {
			name := "store=sqlite"
			if !stored {
				name = "store=none"
			}
			b.Run(fmt.Sprintf("%s/clients=%d", name, clients), func(b *testing.B) {
				var s setup
				if !stored {
					s.inner = nowhere{}
				}
				r := newRelay(b, s)
				for _, name := range []string{"alpha", "beta"} {
					r.agent(name)
				}
				raw := r.render(call{
					agent: "alpha", method: http.MethodPost, target: "/messages",
					body: `{"to":"beta","body":{"text":"hello, how are you today?"}}`,
				})
				r.loadN(b, clients, func(c *leanClient) error {
					_, err := c.ask(raw, http.StatusCreated)
					return err
				})
			})
		}
	}
}

// BenchmarkPullAndSettle measures one message's way through a lease: two
// calls, two commits.
func BenchmarkPullAndSettle(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			r := newRelay(b, setup{})
			r.agent("beta")
			r.fill("beta", b.N)
			pull := r.render(call{agent: "beta", method: http.MethodPost, target: "/v1/pull", body: `{"limit":1}`})
			r.loadN(b, clients, func(c *leanClient) error {
				page, err := c.ask(pull, http.StatusOK)
				if err != nil {
					return err
				}
				body := fmt.Sprintf(`{"messageId":%q,"leaseId":%q,"outcome":"completed"}`, text(page, `"id":"`), text(page, `"leaseId":"`))
				_, err = c.ask(r.render(call{agent: "beta", method: http.MethodPost, target: "/v1/ack", body: body}), http.StatusOK)
				return err
			})
		})
	}
}

// BenchmarkLongPoll measures how long a message takes to one who waits for it,
// from the sender's first byte to the recipient's last.
func BenchmarkLongPoll(b *testing.B) {
	r := newRelay(b, setup{})
	r.agent("alpha")
	r.agent("beta")
	sender, recipient := r.leanClient(b), r.leanClient(b)
	send := r.render(call{agent: "alpha", method: http.MethodPost, target: "/messages", body: `{"to":"beta","body":{"text":"hello"}}`})
	cursor, total := "", time.Duration(0)
	b.ResetTimer()
	for range b.N {
		looked := r.store.count("Poll")
		if _, err := recipient.conn.Write(r.render(call{agent: "beta", target: "/messages?wait=30&since=" + cursor})); err != nil {
			b.Fatal(err)
		}
		r.store.wait(b, "Poll", looked+1)
		began := time.Now()
		if _, err := sender.conn.Write(send); err != nil {
			b.Fatal(err)
		}
		page, err := recipient.read(http.StatusOK)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Since(began)
		cursor = text(page, `"cursor":"`)
		if _, err := sender.read(http.StatusCreated); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/delivery")
}

// leanClient is a client that does little, so that what is measured is the server.
type leanClient struct {
	conn   io.Writer
	reader *bufio.Reader
	body   []byte
}

func (r *relay) leanClient(b *testing.B) *leanClient {
	b.Helper()
	c := r.dial()
	_ = c.SetDeadline(time.Time{})
	return &leanClient{conn: c, reader: c.reader}
}

// ask sends a request and returns the answer's body, until the next call.
func (c *leanClient) ask(raw []byte, status int) ([]byte, error) {
	if _, err := c.conn.Write(raw); err != nil {
		return nil, err
	}
	return c.read(status)
}

func (c *leanClient) read(status int) ([]byte, error) {
	length, got := -1, 0
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if got == 0 {
			got, _ = strconv.Atoi(string(line[9:12]))
		} else if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		} else if len(line) == 2 {
			break
		}
	}
	if length < 0 {
		return nil, fmt.Errorf("the answer %d has no length", got)
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	if _, err := io.ReadFull(c.reader, c.body[:length]); err != nil {
		return nil, err
	}
	if got != status {
		return nil, fmt.Errorf("got %d %s, want %d", got, c.body[:length], status)
	}
	return c.body[:length], nil
}

// text is what stands between a mark and the next quotation mark.
func text(b []byte, mark string) string {
	_, rest, _ := bytes.Cut(b, []byte(mark))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

// loadN has clients do something b.N times in all.
func (r *relay) loadN(b *testing.B, clients int, do func(*leanClient) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	list := make([]*leanClient, clients)
	for i := range list {
		list[i] = r.leanClient(b)
	}
	errs := make(chan error, clients)
	var all sync.WaitGroup
	b.ResetTimer()
	for _, c := range list {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(c); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	select {
	case err := <-errs:
		b.Fatal(err)
	default:
	}
}

// nowhere is a store that keeps nothing, to measure what is around one.
type nowhere struct{ store.Store }

func (nowhere) Agents(context.Context) ([]store.Agent, error)        { return nil, nil }
func (nowhere) Register(context.Context, string) error               { return nil }
func (nowhere) Touch(context.Context, map[string]time.Time) error    { return nil }
func (nowhere) Delivered(context.Context, []string, time.Time) error { return nil }
func (nowhere) Sweep(context.Context) (time.Duration, error)         { return time.Hour, nil }
func (nowhere) Failed() <-chan struct{}                              { return nil }
func (nowhere) Close() error                                         { return nil }
func (nowhere) Enqueue(context.Context, agentrelay.Message) (store.Enqueued, error) {
	return store.Enqueued{}, nil
}
