package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

const secret = "0123456789abcdef0123456789abcdef"

// relay is a real broker over its database, which listens on this machine.
type relay struct {
	dir, addr string
	url       string
	// onRequest is called with every request before it is served.
	onRequest atomic.Pointer[func(*http.Request)]

	store  *sqlite.Store
	broker *broker.Broker
	server *http.Server
	cancel context.CancelFunc
	ended  chan error // the broker's, then the server's
}

// openRelay starts a relay in a directory, on a port that is free.
func openRelay(dir string) (*relay, error) {
	r := &relay{dir: dir, addr: "127.0.0.1:0"}
	return r, r.start()
}

func (r *relay) start() (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	hub := broker.NewHub()
	r.store, err = sqlite.Open(ctx, sqlite.Options{Dir: r.dir, Options: store.Options{Observe: hub.Observe, MaxQueued: 1 << 30, MaxQueuedBytes: 1 << 40}})
	if err != nil {
		return err
	}
	r.broker, err = broker.Open(ctx, broker.Options{
		Store: r.store, Hub: hub, Secret: secret, Heartbeat: time.Minute, TTL: time.Hour,
		Lockout: broker.Lockout{Failures: 5, Duration: time.Minute}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return errors.Join(err, r.store.Close())
	}
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		return errors.Join(err, r.store.Close())
	}
	// Started again, it is where it was.
	r.addr = listener.Addr().String()
	r.url = "http://" + r.addr
	api := httpapi.New(httpapi.Options{
		Broker: r.broker, Version: "test", Storage: "sqlite", MaxBodyBytes: 1 << 20,
		Lease: time.Minute, PerAgent: 1e6, PerAddress: 1e6, Log: slog.New(slog.DiscardHandler),
	})
	r.server = &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if hook := r.onRequest.Load(); hook != nil {
			(*hook)(q)
		}
		api.ServeHTTP(w, q)
	})}
	r.ended = make(chan error, 2)
	running, server := r.broker, r.server
	go func() { r.ended <- running.Run(ctx) }()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.ended <- err
			return
		}
		r.ended <- nil
	}()
	return nil
}

// stop shuts the relay down as the command does.
func (r *relay) stop() error {
	r.broker.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(r.server.Shutdown(ctx), r.end())
}

// crash breaks all connections first.
func (r *relay) crash() error {
	err := r.server.Close()
	r.broker.Drain()
	return errors.Join(err, r.end())
}

func (r *relay) end() error {
	r.cancel()
	return errors.Join(<-r.ended, <-r.ended, r.store.Close())
}

// startRelay runs a relay as long as the test.
func startRelay(t testing.TB) *relay {
	t.Helper()
	r, err := openRelay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// agent registers an agent.
func (r *relay) agent(t testing.TB, name string) *client.Client {
	t.Helper()
	c := r.client(t, client.Options{Agent: name})
	if err := c.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *relay) client(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	o.URL = r.url
	if o.Secret == "" {
		o.Secret = secret
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func send(t testing.TB, from *client.Client, to string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := from.Send(t.Context(), client.Outgoing{ID: id, To: to, Body: client.TextBody(id), Ack: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// once returns a hook that tells of the first request that fits.
func once(fits func(*http.Request) bool) (hook func(*http.Request), came <-chan struct{}) {
	var told atomic.Bool
	c := make(chan struct{})
	return func(q *http.Request) {
		if fits(q) && told.CompareAndSwap(false, true) {
			close(c)
		}
	}, c
}
