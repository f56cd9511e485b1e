//go:build !windows

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/socket"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// scripts fires hooks without any scripts: as a function.
type scripts func(context.Context, hook.Kind, json.RawMessage) hook.Result

func (s scripts) Fire(ctx context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
	return s(ctx, kind, payload)
}

// socketPath is a path that leaves room for a socket's name.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serveControl gives a relay a control socket, until stop is called, or the
// test ends.
func (r *relay) serveControl(t testing.TB, fire scripts) (control *socket.Control, path string, stop func()) {
	t.Helper()
	control = socket.NewControl(socket.ControlOptions{
		Broker: r.broker, Hooks: fire, Version: "1.2.3",
		Reload: func(context.Context) ([]string, error) {
			control.ConfigReloaded()
			return []string{"listen"}, nil
		},
	})
	server, err := socket.Listen(socket.Options{Path: socketPath(t), Serve: control.Serve})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancelEvents := r.broker.Subscribe(control.Publish)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancelEvents()
	})
	t.Cleanup(stop)
	return control, server.Path(), stop
}

func dialControl(t testing.TB, path string) *client.Control {
	t.Helper()
	c, err := client.DialControl(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// An agent's life, as its operator drives it.
func TestControlAgents(t *testing.T) {
	r := startRelay(t)
	_, path, _ := r.serveControl(t, nil)
	c, ctx := dialControl(t, path), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if c.Version() != "1.2.3" {
		t.Errorf("version %q", c.Version())
	}
	key, err := c.AddAgent(ctx, "worker", client.AgentChange{
		Description: client.Set("builds <things>"), AllowedTargets: client.Set([]string{"planner"}), MaxQueued: client.Set(int64(7)),
	})
	must(err)
	if key.Agent != "worker" || key.ID == "" || len(key.Secret) < 32 || !key.NotAfter.IsZero() {
		t.Errorf("got %+v", key)
	}
	info, err := c.Agent(ctx, "worker")
	must(err)
	if !info.Registered || len(info.Keys) != 1 || info.Keys[0].ID != key.ID || time.Since(info.Keys[0].Created).Abs() > time.Hour {
		t.Errorf("got %+v", info)
	}
	values := func(a client.AgentInfo) string {
		return fmt.Sprintf("%q %q %t %d", a.Description, a.AllowedTargets, a.AllowedTargets == nil, a.MaxQueued)
	}
	if got, want := values(info), `"builds <things>" ["planner"] false 7`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	// The three states of a change.
	for _, step := range []struct {
		change client.AgentChange
		want   string
	}{
		{client.AgentChange{}, `"builds <things>" ["planner"] false 7`},
		{client.AgentChange{Description: client.Remove[string]()}, `"" ["planner"] false 7`},
		{client.AgentChange{AllowedTargets: client.Set([]string{})}, `"" [] false 7`},
		{client.AgentChange{AllowedTargets: client.Remove[[]string](), MaxQueued: client.Remove[int64]()}, `"" [] true 0`},
	} {
		info, err := c.UpdateAgent(ctx, "worker", step.change)
		must(err)
		if got := values(info); got != step.want {
			t.Errorf("%+v: got %s, want %s", step.change, got, step.want)
		}
	}

	// Its key signs, and the shared secret does not.
	as := func(secret string) error {
		own, err := client.New(client.Options{URL: r.url, Agent: "worker", Secret: secret, Pauses: client.NoRetries})
		must(err)
		defer own.Close()
		return own.Register(ctx)
	}
	must(as(key.Secret))
	if err := as(secret); !errors.Is(err, agentrelay.ErrUnauthenticated) {
		t.Errorf("with the shared secret: %v", err)
	}

	// Keys come and go.
	end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	second, err := c.AddKey(ctx, "worker", end)
	must(err)
	if !second.NotAfter.Equal(end) {
		t.Errorf("a key until %v, want %v", second.NotAfter, end)
	}
	must(as(second.Secret))
	must(c.RevokeKey(ctx, "worker", second.ID))
	if err := as(second.Secret); !errors.Is(err, agentrelay.ErrUnauthenticated) {
		t.Errorf("with a revoked key: %v", err)
	}
	third, err := c.RotateKey(ctx, "worker", time.Hour)
	must(err)
	must(errors.Join(as(key.Secret), as(third.Secret)))
	fourth, err := c.RotateKey(ctx, "worker", 0)
	must(err)
	if err := as(key.Secret); !errors.Is(err, agentrelay.ErrUnauthenticated) {
		t.Errorf("with a key that ended: %v", err)
	}
	must(as(fourth.Secret))

	for range 10 {
		_ = as("wrong" + secret)
	}
	info, err = c.Agent(ctx, "worker")
	must(err)
	if info.LockedUntil.IsZero() {
		t.Error("it is not locked")
	}
	must(c.UnlockAgent(ctx, "worker"))
	must(as(fourth.Secret))

	agents, err := c.Agents(ctx)
	must(err)
	if len(agents) != 1 || agents[0].Agent != "worker" || agents[0].LastSeen.IsZero() || !agents[0].Online {
		t.Errorf("agents %+v", agents)
	}
	must(c.RemoveAgent(ctx, "worker"))
	_, err = c.Agent(ctx, "worker")
	if !errors.Is(err, agentrelay.ErrNoSuchAgent) || err.Error() != "no such agent" {
		t.Errorf("a removed agent: %v", err)
	}
	must(as(secret))
}

func TestControlMessages(t *testing.T) {
	r := startRelay(t)
	_, path, _ := r.serveControl(t, func(_ context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
		return hook.Failed(hook.Failure{Script: string(kind), Reason: string(payload)})
	})
	c, ctx := dialControl(t, path), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"alpha", "beta"} {
		_, err := c.AddAgent(ctx, name, client.AgentChange{})
		must(err)
	}
	const body = "{\n \"n\": 1e400, \"n\":\"\\u00e9<\"}"
	sent, err := c.Send(ctx, "alpha", client.Outgoing{To: "beta", ID: "m/1", Body: json.RawMessage(body), Kind: agentrelay.KindRequest, Ack: true})
	must(err)
	again, err := c.Send(ctx, "alpha", client.Outgoing{To: "beta", ID: "m/1", Body: json.RawMessage(strings.ReplaceAll(body, "\n", " ")), Kind: agentrelay.KindRequest, Ack: true})
	must(err)
	if sent.ID != "m/1" || sent.Duplicate || !again.Duplicate {
		t.Errorf("sent %+v and again %+v", sent, again)
	}
	_, err = c.Send(ctx, "beta", client.Outgoing{To: "alpha", Kind: agentrelay.KindReply, ReplyTo: "m/1", ParentID: "m/1"})
	must(err)

	found, err := c.Recent(ctx, "beta", 0)
	must(err)
	if len(found) != 1 || string(found[0].Body) != strings.ReplaceAll(body, "\n", " ") || found[0].Kind != agentrelay.KindRequest || !found[0].Ack {
		t.Errorf("beta has %+v", found)
	}
	found, err = c.Query(ctx, "alpha", client.Filter{Kind: agentrelay.KindReply, Status: agentrelay.StatusQueued, From: "beta", Limit: 1, MaxBytes: 1})
	must(err)
	if len(found) != 1 || found[0].ParentID != "m/1" || string(found[0].Body) != "{}" {
		t.Errorf("alpha has %+v", found)
	}

	status := func() string {
		t.Helper()
		found, err := c.Status(ctx, "beta", "unknown", "m/1")
		must(err)
		if len(found) != 2 || found[0].Status != client.StatusNotFound || string(found[1].Body) != "null" {
			t.Errorf("status %+v", found)
		}
		return string(found[1].Status)
	}
	must(c.Cancel(ctx, "m/1"))
	if got := status(); got != "failed" {
		t.Errorf("a cancelled message is %s", got)
	}
	must(c.Requeue(ctx, "m/1"))
	if got := status(); got != "queued" {
		t.Errorf("a queued message is %s", got)
	}
	for name, err := range map[string]error{
		"requeue": c.Requeue(ctx, "unknown"), "cancel": c.Cancel(ctx, "unknown"),
	} {
		if !errors.Is(err, agentrelay.ErrNoSuchMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}

	result, err := c.FireHook(ctx, client.HookKind("cost-alert"), json.RawMessage("{\n\"n\":\"<\"}"))
	must(err)
	if result.OK || result.Errors[0].Script != "cost-alert" || result.Errors[0].Reason != `{ "n":"<"}` {
		t.Errorf("fired %+v", result)
	}
	result, err = c.FireHook(ctx, client.HookKind("cost-alert"), nil)
	must(err)
	if result.Errors[0].Reason != "" {
		t.Errorf("fired %+v", result)
	}
	restart, err := c.Reload(ctx)
	must(err)
	if diff := cmp.Diff([]string{"listen"}, restart); diff != "" {
		t.Error(diff)
	}
	stats, err := c.Stats(ctx)
	must(err)
	if stats.DaemonVersion != "1.2.3" || stats.Agents != 2 || stats.ControlClients != 1 || stats.Started.IsZero() || stats.DatabaseBytes == 0 {
		t.Errorf("stats %+v", stats)
	}

	// Refused before anything is sent, or after.
	for name, m := range map[string]client.Outgoing{
		"a root":          {To: "beta", RootID: "m/1"},
		"another parent":  {To: "beta", ParentID: "m/2", ReplyTo: "m/1", Kind: agentrelay.KindReply},
		"a parent":        {To: "beta", ParentID: "m/1", ReplyTo: "m/1"},
		"no JSON":         {To: "beta", Body: json.RawMessage("{")},
		"two values":      {To: "beta", Body: json.RawMessage(`1,"to":"gamma"`)},
		"no recipient":    {},
		"a bad recipient": {To: "b c"},
	} {
		if _, err := c.Send(ctx, "alpha", m); !errors.Is(err, agentrelay.ErrBadRequest) && name != "two values" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Send(ctx, "alpha", client.Outgoing{To: "betta"}); !errors.Is(err, agentrelay.ErrNoSuchAgent) {
		t.Errorf("to nobody: %v", err)
	} else {
		var e *agentrelay.Error
		if errors.As(err, &e); !cmp.Equal(e.Suggestions, []string{"beta"}) {
			t.Errorf("suggested %q", e.Suggestions)
		}
	}
}

// Events come from when Subscribe has returned, and end with the context.
func TestControlEvents(t *testing.T) {
	r := startRelay(t)
	control, path, stop := r.serveControl(t, nil)
	c := dialControl(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all, err := c.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	some, err := c.Subscribe(ctx, "message_accepted", "config_reloaded")
	if err != nil {
		t.Fatal(err)
	}
	defer some.Close()
	if _, err := c.Subscribe(ctx, "unheard_of"); !errors.Is(err, agentrelay.ErrBadRequest) {
		t.Errorf("an unknown event: %v", err)
	}
	if _, err := c.AddAgent(ctx, "beta", client.AgentChange{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(ctx, "alpha", client.Outgoing{To: "beta", ID: "m/1"}); err != nil {
		t.Fatal(err)
	}
	control.HookFailed("pre-message", "a.sh")
	if _, err := c.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	hear := func(s *client.Subscription, n int) (heard []string) {
		t.Helper()
		for range n {
			e, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if time.Since(e.TS).Abs() > time.Hour || !strings.HasPrefix(string(e.JSON), `{"kind":"event","event":"`+e.Name) {
				t.Errorf("got %+v", e)
			}
			heard = append(heard, strings.TrimRight(fmt.Sprintln(e.Seq, e.Name, e.ID, e.From, e.To, e.Agent, e.Hook, e.Script), " \n"))
		}
		return heard
	}
	if diff := cmp.Diff([]string{"1 message_accepted m/1 alpha beta", "2 config_reloaded"}, hear(some, 2)); diff != "" {
		t.Errorf("some (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"1 agent_registered    beta", "2 message_accepted m/1 alpha beta", "3 hook_failed     pre-message a.sh", "4 config_reloaded",
	}, hear(all, 4)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}

	// As an iteration, from its first step on.
	iterating := make(chan error)
	heard := make(chan client.Event)
	go func() {
		for e, err := range c.Events(ctx, "config_reloaded") {
			if err != nil {
				iterating <- err
				return
			}
			heard <- e
		}
		iterating <- nil
	}()
	for got := false; !got; {
		control.ConfigReloaded()
		select {
		case e := <-heard:
			got = true
			if e.Name != "config_reloaded" || e.Seq != 1 {
				t.Errorf("got %+v", e)
			}
		case <-time.After(time.Millisecond):
		}
	}
	go func() {
		for range heard {
		}
	}()
	cancel()
	if err := <-iterating; !errors.Is(err, context.Canceled) {
		t.Errorf("the iteration ended with %v", err)
	}
	close(heard)
	if _, err := some.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v", err)
	}
	for _, err := range c.Events(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("an iteration that was cancelled before: %v", err)
		}
	}

	// The broker's end ends everything.
	stop()
	for err := error(nil); err == nil; {
		if _, err = all.Next(t.Context()); err != nil && (!errors.Is(err, client.ErrUnreachable) || !strings.HasSuffix(err.Error(), "the relay is shutting down")) {
			t.Errorf("Next: %v", err)
		}
	}
	for _, err := range c.Events(t.Context()) {
		if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "start it with `agent-relay setup start`") {
			t.Errorf("events of no broker: %v", err)
		}
	}
	for range 2 { // the first may still be written
		if _, err := c.Stats(t.Context()); !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("stats of no broker: %v", err)
		}
	}
}

// A slow call holds up no other one, and a context ends it.
func TestControlConcurrent(t *testing.T) {
	r := startRelay(t)
	began, end := make(chan bool), make(chan bool)
	_, path, _ := r.serveControl(t, func(context.Context, hook.Kind, json.RawMessage) hook.Result {
		began <- true
		<-end
		return hook.Result{OK: true}
	})
	c := dialControl(t, path)
	cancelled, cancel := context.WithCancel(t.Context())
	fired := make(chan error)
	for _, ctx := range []context.Context{t.Context(), cancelled} {
		go func() {
			_, err := c.FireHook(ctx, "cost-alert", nil)
			fired <- err
		}()
		<-began
	}
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := c.Stats(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	cancel()
	if err := <-fired; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := c.Stats(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	close(end)
	if err := <-fired; err != nil {
		t.Errorf("the other one: %v", err)
	}
	if _, err := c.Stats(t.Context()); err != nil {
		t.Error(err)
	}
}
