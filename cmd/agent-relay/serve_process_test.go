package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/store"
)

func processConfig(t *testing.T) *config {
	t.Helper()
	c := defaultConfig()
	c.Listen = "127.0.0.1:0"
	c.Secret = testSecret
	c.DataDir = filepath.Join(t.TempDir(), "data")
	return c
}

// newTestApp is a program whose user has a home of the test's.
func newTestApp(t *testing.T) *app {
	t.Helper()
	home := t.TempDir()
	return &app{env: variables("HOME", home, "AppData", home, "LocalAppData", home), version: "test"}
}

func openTestProcess(t *testing.T, c *config, log io.Writer) *process {
	t.Helper()
	p, err := newTestApp(t).openProcess(t.Context(), c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// failingStore fails when it is told to.
type failingStore struct {
	store.Store
	failed chan struct{}
}

func (s *failingStore) Failed() <-chan struct{} { return s.failed }

func (s *failingStore) Err() error { return errors.New("the disk is gone") }

// A store that can no longer write ends the process, with an error.
func TestProcessStoreFails(t *testing.T) {
	p := openTestProcess(t, processConfig(t), io.Discard)
	failing := &failingStore{Store: p.store, failed: make(chan struct{})}
	var err error
	p.broker, err = broker.Open(t.Context(), broker.Options{
		Store: failing, Hub: broker.NewHub(), Secret: testSecret, Heartbeat: time.Minute,
		Lockout: broker.Lockout{Failures: 1, Duration: time.Minute}, Log: p.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	close(failing.failed)
	err = p.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") || !strings.Contains(err.Error(), "restart the broker") {
		t.Errorf("got %v", err)
	}
}

// So does a listener that can no longer accept.
func TestProcessListenerFails(t *testing.T) {
	p := openTestProcess(t, processConfig(t), io.Discard)
	if err := p.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// An end that hangs is given up.
func TestProcessEndTimeout(t *testing.T) {
	c := processConfig(t)
	c.Storage = storageMemory
	p := openTestProcess(t, c, io.Discard)
	p.endTimeout = time.Millisecond
	release, ended := make(chan struct{}), make(chan struct{})
	err := p.end(nil, func() error {
		defer close(ended)
		<-release
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "did not end within 1ms") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(p.temporary); !os.IsNotExist(err) {
		t.Errorf("the temporary directory: %v", err)
	}
	close(release)
	<-ended
	_ = p.close() // its directory is gone
	_ = p.listener.Close()
}

// A context that has ended already ends a process cleanly.
func TestProcessEndsAtOnce(t *testing.T) {
	var log strings.Builder
	p := openTestProcess(t, processConfig(t), &log)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.run(ctx); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "msg=ended") {
		t.Error(log.String())
	}
	if _, err := http.Get("http://" + p.listener.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

func TestServeInterruptedAtTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if status := run(ctx, []string{"serve", "--config", relayConfig(t)}, nil, nil, &out, &out); status != 0 {
		t.Errorf("exit status %d: %s", status, out.String())
	}
}

func TestProcessWarnsBeyondThisMachine(t *testing.T) {
	const refused = "add the names and addresses they call to public_hosts"
	for _, test := range []struct {
		listen string
		public []string
		want   []string
	}{
		{"127.0.0.1:0", nil, nil},
		{"0.0.0.0:0", nil, []string{refused}},
		{"0.0.0.0:0", []string{"relay.example.org"}, nil},
	} {
		c := processConfig(t)
		c.Listen, c.PublicHosts, c.TLS = test.listen, test.public, writeCertificate(t, t.TempDir(), 1)
		var log strings.Builder
		p := openTestProcess(t, c, &log)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.run(ctx); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != len(test.want) {
			t.Errorf("%s: %d warnings:\n%s", test.listen, got, log.String())
		}
		for _, text := range test.want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: no warning %q:\n%s", test.listen, text, log.String())
			}
		}
	}
}

// What cannot be opened leaves nothing open.
func TestProcessOpenErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *config)
		want   string
	}{
		"port in use":     {func(_ *testing.T, c *config) { c.Listen = taken.Addr().String() }, "set another listen in "},
		"no such address": {func(_ *testing.T, c *config) { c.Listen = "192.0.2.1:0" }, "set another listen in "},
		"no such host":    {func(_ *testing.T, c *config) { c.Listen = "host.invalid:0" }, "set another listen in "},
		"a file for data": {func(_ *testing.T, c *config) { c.DataDir = file }, "data directory"},
		"below a file":    {func(t *testing.T, c *config) { c.DataDir = filepath.Join(file, "x") }, "data directory"},
		"no temporary file": {func(t *testing.T, c *config) {
			c.Storage = storageMemory
			t.Setenv("TMPDIR", file)
			t.Setenv("TMP", file)
		}, "set TMPDIR"},
		"a damaged data file":  {func(t *testing.T, c *config) { damage(t, c.DataDir, "not a database, and longer than a header of one") }, "relay.db"},
		"an empty data folder": {func(*testing.T, *config) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := processConfig(t)
			test.change(t, c)
			p, err := newTestApp(t).openProcess(t.Context(), c, slog.New(slog.DiscardHandler))
			if test.want == "" && err == nil {
				if err := errors.Join(p.listener.Close(), p.close()); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
		})
	}
}

func damage(t *testing.T, dir, content string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "relay.db"), []byte(strings.Repeat(content, 100)), 0o600); err != nil {
		t.Fatal(err)
	}
}
