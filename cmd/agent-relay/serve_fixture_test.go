package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// relay is a broker in a process of its own.
type relay struct {
	t       *testing.T
	command *exec.Cmd
	config  string
	url     string
	log     *logBuffer
	ended   chan struct{}
	err     error
	signed  signatures
}

// signatures notes what its clients sign with.
type signatures struct {
	http.Transport
	mu   sync.Mutex
	seen []string
}

func (s *signatures) RoundTrip(req *http.Request) (*http.Response, error) {
	if text := req.Header.Get(agentrelay.HeaderSignature); text != "" {
		s.mu.Lock()
		s.seen = append(s.seen, text)
		s.mu.Unlock()
	}
	return s.Transport.RoundTrip(req)
}

// relayOptions say how to start one.
type relayOptions struct {
	// lines are further lines of the config; config is one that is there.
	lines  []string
	config string
	// args stand for serve and its flags, but for --config. Default: serve, and
	// logs of every level as text.
	args []string
	env  []string
}

// startRelay starts a broker and waits until it listens.
func startRelay(t *testing.T, o relayOptions) *relay {
	t.Helper()
	r := launchRelay(t, o)
	r.url = "http://" + r.waitLog(`listening"?[ ,].*"?addr"?[=:]"?([0-9.]+:[0-9]+)`)
	return r
}

// launchRelay starts a broker and does not wait for it. It is killed at the end of
// the test, if it has not ended.
func launchRelay(t *testing.T, o relayOptions) *relay {
	t.Helper()
	r := &relay{t: t, config: o.config, log: &logBuffer{}, ended: make(chan struct{})}
	if r.config == "" {
		r.config = relayConfig(t, o.lines...)
	}
	if o.args == nil {
		o.args = []string{"serve", "--log-level", "debug", "--log-format", "text"}
	}
	r.command = exec.Command("agent-relay", append(o.args, "--config", r.config)...)
	r.command.Env = append(os.Environ(), o.env...)
	r.command.Stderr = r.log
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.command.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.command.Process.Kill() // it may have ended
		<-r.ended
		if t.Failed() {
			t.Logf("the broker's log:\n%s", r.log)
		}
	})
	return r
}

// relayConfig writes a config with a port that the system chooses.
func relayConfig(t *testing.T, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	if !strings.Contains(strings.Join(lines, "\n"), "data_dir:") {
		lines = append(lines, "data_dir: '"+filepath.Join(dir, "data")+"'")
	}
	path := filepath.Join(dir, "config.yaml")
	if err := writeConfig(path, "127.0.0.1:0", lines...); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *relay) client(agent string) *client.Client {
	r.t.Helper()
	c, err := client.New(client.Options{URL: r.url, Agent: agent, Secret: scriptSecret, Transport: &r.signed, Pauses: client.NoRetries})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// registered is a client whose agent is known to the broker.
func (r *relay) registered(agent string) *client.Client {
	r.t.Helper()
	c := r.client(agent)
	if err := c.Register(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *relay) signal(s os.Signal) {
	r.t.Helper()
	if err := r.command.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// wait returns the exit status, and how long the process took to end.
func (r *relay) wait() (status int, took time.Duration) {
	r.t.Helper()
	began := time.Now()
	select {
	case <-r.ended:
	case <-time.After(30 * time.Second):
		r.t.Fatalf("the broker did not end; its log:\n%s", r.log)
	}
	var exit *exec.ExitError
	if r.err != nil && !errors.As(r.err, &exit) {
		r.t.Fatal(r.err)
	}
	return r.command.ProcessState.ExitCode(), time.Since(began)
}

// waitLog waits until the log has a match, and returns its first group.
func (r *relay) waitLog(expression string) string {
	r.t.Helper()
	re := regexp.MustCompile(expression)
	var match []string
	err := waitFor(func() error {
		if match = re.FindStringSubmatch(r.log.String()); match != nil {
			return nil
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the broker ended (%v); its log:\n%s", r.err, r.log)
		default:
		}
		return fmt.Errorf("the log has no %s:\n%s", expression, r.log)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(match) > 1 {
		return match[1]
	}
	return ""
}

// logBuffer collects what a process writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
