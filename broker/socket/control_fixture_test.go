//go:build !windows

package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

// recorder is a broker that notes what it is asked, and answers what it is told.
type recorder struct {
	mu    sync.Mutex
	calls []string
	err   error

	agents   []broker.AgentInfo
	key      broker.Key
	messages []agentrelay.Message
	held     store.Stats
	// restart is what Reload cannot change.
	restart []string
	// sending, unless nil, is called by Send.
	sending func(agentrelay.Message)
}

// note notes a call.
func (r *recorder) note(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	return r.err
}

// asked returns what was noted since it was called before.
func (r *recorder) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *recorder) AgentInfos(context.Context) ([]broker.AgentInfo, error) {
	err := r.note("AgentInfos")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents, err
}

// knows gives it agents.
func (r *recorder) knows(agents ...broker.AgentInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents = agents
}

func (r *recorder) AgentInfo(_ context.Context, name string) (broker.AgentInfo, error) {
	err := r.note("AgentInfo %s", name)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.agents {
		if a.Agent == name {
			return a, err
		}
	}
	return broker.AgentInfo{}, &agentrelay.Error{Code: agentrelay.CodeNoSuchAgent, Message: "nobody is called that", Suggestions: []string{"alpha"}}
}

// showPatch writes a patch such that its three states differ.
func showPatch[T any](p broker.Patch[T]) string {
	switch {
	case !p.Set:
		return "same"
	case p.Value == nil:
		return "none"
	}
	text, _ := json.Marshal(*p.Value)
	return string(text)
}

func showAgentPatch(p broker.AgentPatch) string {
	return showPatch(p.Description) + " " + showPatch(p.AllowedTargets) + " " + showPatch(p.MaxQueued)
}

func (r *recorder) AddAgent(_ context.Context, name string, p broker.AgentPatch) (broker.Key, error) {
	return r.key, r.note("AddAgent %s %s", name, showAgentPatch(p))
}

func (r *recorder) UpdateAgent(_ context.Context, name string, p broker.AgentPatch) (broker.AgentInfo, error) {
	return broker.AgentInfo{Agent: name}, r.note("UpdateAgent %s %s", name, showAgentPatch(p))
}

func (r *recorder) RemoveAgent(_ context.Context, name string) error {
	return r.note("RemoveAgent %s", name)
}

func (r *recorder) UnlockAgent(_ context.Context, name string) error {
	return r.note("UnlockAgent %s", name)
}

func (r *recorder) AddKey(_ context.Context, name string, notAfter time.Time) (broker.Key, error) {
	k := r.key
	k.NotAfter = notAfter
	return k, r.note("AddKey %s %v", name, notAfter.UTC())
}

func (r *recorder) RotateKey(_ context.Context, name string, overlap time.Duration) (broker.Key, error) {
	return r.key, r.note("RotateKey %s %v", name, overlap)
}

func (r *recorder) RevokeKey(_ context.Context, name, keyID string) error {
	return r.note("RevokeKey %s %s", name, keyID)
}

func (r *recorder) Send(_ context.Context, m agentrelay.Message) (broker.Sent, error) {
	if r.sending != nil {
		r.sending(m)
	}
	return broker.Sent{ID: m.ID, Duplicate: m.ID == "again"},
		r.note("Send %s", m.AppendJSON(nil))
}

func (r *recorder) Messages(_ context.Context, agent string, ids []string) (map[string]agentrelay.Message, error) {
	found := map[string]agentrelay.Message{}
	for _, m := range r.messages {
		found[m.ID] = m
	}
	return found, r.note("Messages %s %q", agent, ids)
}

func (r *recorder) Query(_ context.Context, f store.Filter) ([]agentrelay.Message, error) {
	return r.messages, r.note("Query %+v", f)
}

func (r *recorder) Requeue(_ context.Context, id string) error { return r.note("Requeue %s", id) }
func (r *recorder) Cancel(_ context.Context, id string) error  { return r.note("Cancel %s", id) }

func (r *recorder) Peers() []agentrelay.Peer {
	return []agentrelay.Peer{{Agent: "alpha", Online: true}, {Agent: "beta"}}
}

func (r *recorder) Stats(context.Context) (store.Stats, error) { return r.held, r.note("Stats") }

// fired is a dispatcher that is a function.
type fired func(context.Context, hook.Kind, json.RawMessage) hook.Result

func (f fired) Fire(ctx context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
	return f(ctx, kind, payload)
}

// controlSocket is a control socket before a recorder.
type controlSocket struct {
	*fixture
	control *Control
	broker  *recorder
}

func newControlSocket(t testing.TB, hooks fired) *controlSocket {
	t.Helper()
	s := &controlSocket{broker: &recorder{}}
	log := &logged{}
	s.control = NewControl(ControlOptions{
		Broker: s.broker, Hooks: hooks, Version: "1.2.3", Log: textLogger(log),
		Reload: func(context.Context) ([]string, error) {
			s.control.ConfigReloaded()
			return s.broker.restart, s.broker.note("Reload")
		},
	})
	s.fixture = newFixture(t, Options{Serve: s.control.Serve})
	s.log = log
	return s
}

// controlConn is a client that speaks lines.
type controlConn struct {
	*net.UnixConn
	t testing.TB
	r *bufio.Reader
}

func (s *controlSocket) connect() *controlConn {
	s.t.Helper()
	conn := s.dial()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // or else a fault hangs
		s.t.Fatal(err)
	}
	return &controlConn{conn, s.t, bufio.NewReader(conn)}
}

const (
	helloLine   = `{"id":1,"method":"hello","params":{"version":1}}`
	helloAnswer = `{"kind":"reply","id":1,"result":{"type":"hello","data":{"version":1,"daemon_version":"1.2.3"}}}`
)

// greet connects and says hello.
func (s *controlSocket) greet() *controlConn {
	s.t.Helper()
	c := s.connect()
	if got := c.ask(helloLine); got != helloAnswer {
		s.t.Fatalf("hello: %s", got)
	}
	return c
}

func (c *controlConn) say(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			c.t.Fatalf("%.100s: %v", line, err)
		}
	}
}

// hear returns the next line.
func (c *controlConn) hear() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("after %q: %v", line, err)
	}
	return line[:len(line)-1]
}

func (c *controlConn) ask(line string) string {
	c.t.Helper()
	c.say(line)
	return c.hear()
}

// rest returns what comes until the connection is closed.
func (c *controlConn) rest() string {
	c.t.Helper()
	text, err := io.ReadAll(c.r)
	if err != nil {
		c.t.Errorf("after %q: %v", text, err)
	}
	return string(text)
}
