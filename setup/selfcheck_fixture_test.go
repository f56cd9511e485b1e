package setup_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/httpapi"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/setup"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret  = "0123456789abcdef0123456789abcdef"
	version = "v1.2.3"
)

// shiftedClock is the system's, and so much ahead.
type shiftedClock struct {
	store.SystemClock
	ahead atomic.Int64
}

func (c *shiftedClock) Now() time.Time {
	return c.SystemClock.Now().Add(time.Duration(c.ahead.Load()))
}

// installation is a broker and a config, as a user has them.
type installation struct {
	dir, url string
	clock    *shiftedClock
	acl      map[string][]string
	keysOnly bool
	// between stands between the clients and the broker.
	between func(next http.Handler) http.Handler
}

func (i *installation) start(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	i.dir = t.TempDir()
	if err := os.Chmod(i.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	i.clock = &shiftedClock{}
	hub := broker.NewHub()
	s, err := sqlite.Open(ctx, sqlite.Options{Dir: filepath.Join(i.dir, "data"), Options: store.Options{Clock: i.clock, Observe: hub.Observe}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Open(ctx, broker.Options{
		Store: s, Hub: hub, Secret: secret, AllowedTargets: i.acl, RequireAgentKeys: i.keysOnly, Heartbeat: time.Minute, TTL: time.Hour,
		Lockout: broker.Lockout{Failures: 5, Duration: time.Minute}, Clock: i.clock, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = httpapi.New(httpapi.Options{
		Broker: b, Version: version, Storage: "sqlite", MaxBodyBytes: 1 << 20, Lease: time.Minute,
		PerAgent: 60000, PerAddress: 60000, Log: slog.New(slog.DiscardHandler),
	})
	if i.between != nil {
		handler = i.between(handler)
	}
	server := httptest.NewServer(handler)
	i.url = server.URL
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(running) }()
	t.Cleanup(func() {
		b.Drain()
		server.Close()
		stop()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
}

func (i *installation) options() setup.SelfcheckOptions {
	return setup.SelfcheckOptions{
		ConfigPath: filepath.Join(i.dir, "config.yaml"), DataDir: filepath.Join(i.dir, "data"),
		URL: i.url, Secret: secret, Version: version, Command: "relay", Env: variables(),
	}
}

func (i *installation) client(t *testing.T, agent string) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Options{URL: i.url, Agent: agent, Secret: secret, Transport: transport, Now: i.clock.Now, Pauses: client.NoRetries})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func variables(pairs ...string) func(string) string {
	env := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return env[name] }
}

var checkNames = []string{
	"config", "config-directory", "data-directory", "file-system", "port", "version", "clock", "round-trip", "proxy",
}

// failing returns the checks that failed, and fails itself if the report is
// not in order.
func failing(t *testing.T, r setup.Report) map[string]setup.Check {
	t.Helper()
	failed := map[string]setup.Check{}
	var names []string
	for _, c := range r.Checks {
		names = append(names, c.Name)
		if strings.Contains(c.Detail+c.Remedy, secret) {
			t.Errorf("%s shows the secret: %+v", c.Name, c)
		}
		if !c.OK {
			failed[c.Name] = c
			if c.Remedy == "" && c.Name != "config" {
				t.Errorf("%s failed without a remedy: %s", c.Name, c.Detail)
			}
		}
	}
	if diff := cmp.Diff(checkNames, names); diff != "" {
		t.Error(diff)
	}
	if r.OK != (len(failed) == 0) {
		t.Errorf("OK is %v with %d failed", r.OK, len(failed))
	}
	return failed
}

// expectFailures fails unless exactly the named checks failed, each with the
// text in its detail and remedy.
func expectFailures(t *testing.T, r setup.Report, want map[string]string) {
	t.Helper()
	got := failing(t, r)
	for name, text := range want {
		if c := got[name]; !strings.Contains(c.Detail+"; "+c.Remedy, text) || c.Name == "" {
			t.Errorf("%s: got %q, want %q", name, c.Detail+"; "+c.Remedy, text)
		}
		delete(got, name)
	}
	for name, c := range got {
		t.Errorf("%s failed: %s; %s", name, c.Detail, c.Remedy)
	}
}

func expectEmptyInboxes(t *testing.T, i *installation) {
	t.Helper()
	for _, agent := range []string{"selfcheck-a", "selfcheck-b"} {
		page, err := i.client(t, agent).Poll(t.Context(), client.PollOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) != 0 {
			t.Errorf("%s has %d messages left", agent, len(page.Messages))
		}
	}
}
