package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/broker/connector"
)

// Operators see connectors, take leave of them, and have them dialled again.
func TestConnectorCommands(t *testing.T) {
	s := startChat(t)
	r := startRelay(t, relayOptions{lines: []string{chatLines(t, s.url)}, env: []string{"XDG_RUNTIME_DIR=", "RUNTIME_DIRECTORY="}})
	command := func(status int, args ...string) string {
		t.Helper()
		cmd := exec.Command("agent-relay", append(append([]string{"connector"}, args...), "--config", r.config)...)
		cmd.Env = append(cmd.Environ(), "XDG_RUNTIME_DIR=", "RUNTIME_DIRECTORY=")
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Fatalf("%q exits %d, want %d:\n%s", args, got, status, out)
		}
		return string(out)
	}
	want := func(out, expression string) {
		t.Helper()
		if !regexp.MustCompile(expression).MatchString(out) {
			t.Errorf("it prints\n%swant %s", out, expression)
		}
	}
	c := s.next(t)
	out := command(0, "test", "chat")
	want(out, `(?m)^chat +online +\S.* chat +0 +0`)
	want(out, `\{"contract_version":1,.*"platform":"chat"`)
	want(command(0, "list", "--json"), `^\{"connectors":\[\{"connector":"chat","state":"online",`)

	left := make(chan struct{})
	go func() {
		defer close(left)
		if f, ok := c.hear().(connector.GoingIdle); !ok {
			t.Errorf("the relay says %#v", f)
		}
		_ = c.Send(c.ctx, connector.GoingIdleAck{}.AppendJSON(nil))
		c.hear()
	}()
	want(command(0, "idle", "chat"), `(?m)^chat +idle `)
	<-left
	ann := r.registered("ann")
	say(t, ann, "m1", `{"chat_id":"c","text":"one"}`)
	want(command(0, "list"), `(?m)^chat +idle +\S.* chat +1 +0`)

	back := make(chan connector.Frame, 1)
	go func() { back <- s.next(t).hear() }()
	command(0, "test", "chat")
	if o, ok := (<-back).(connector.Outbound); !ok || o.Action.Content != "one" {
		t.Errorf("the relay says %+v", o)
	}
	if out := command(exitBadData, "idle", "nobody"); !strings.Contains(out, "there is no connector") {
		t.Errorf("of nobody it says %s", out)
	}
}
