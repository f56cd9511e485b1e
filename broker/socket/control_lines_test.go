//go:build !windows

package socket

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// Lines that cannot be read are skipped, counted and logged; where an id can be
// read they are answered.
func TestControlUnreadable(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.greet()
	silent := []string{
		"", "not-json", "\x00\x01\xff\xfe", `{"id":7,"x":"` + "\xff" + `"}`, `null`, `[]`, `7`, `"id"`, `{}`, `{"id":null,"method":"stats"}`,
		`{"id":"7","method":"stats"}`, `{"ID":7,"method":"stats"}`, `{"id":[7],"method":"stats"}`, `{"method":"stats"`, `{"method":{"id":7}`, `{`, `{"id":`, `{"id":7`[:6],
	}
	c.say(silent...)
	answered := []struct{ line, want string }{
		{`{"id":11`, `11,"error":"the line is not valid JSON: unexpected end of JSON input"`},
		{`{"id":12,"method":`, `12,"error":"the line is not valid JSON: unexpected end of JSON input"`},
		{`{"a":{"id":1},"id":13,"method":"stats"} x`, `13,"error":"the line is not valid JSON: invalid character 'x' after top-level value"`},
		{`{"id":-1.5e3}`, `-1.5e3,"error":"\"method\" must be a string"`},
		{`{"id":14,"method":7}`, `14,"error":"\"method\" must be a string"`},
		{`{"id":15,"method":"stats","params":[]}`, `15,"error":"\"params\" must be an object"`},
		{`{"id":16,"method":"stats","params":7}`, `16,"error":"\"params\" must be an object"`},
		{`{"id":17,"method":"stats","params":{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}}`, `17,"error":"\"params\" cannot be read: they are nested too deep"`},
	}
	for _, q := range answered {
		if got, want := c.ask(q.line), `{"kind":"reply","id":`+q.want+`,"code":"bad_request"}`; got != want {
			t.Errorf("%s\ngot  %s\nwant %s", q.line, got, want)
		}
	}
	if got, want := c.ask(`{"id":99,"method":"list_agents","params":{"x":`+strings.Repeat("[", 63)+strings.Repeat("]", 63)+"}}\r"), `{"kind":"reply","id":99,"result":{"type":"agents","data":[]}}`; got != want {
		t.Errorf("after them: %s", got)
	}
	n := len(silent) + len(answered)
	if got := s.control.Stats().Unreadable; got != uint64(n) {
		t.Errorf("counted %d, want %d", got, n)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.rest(); got != "" {
		t.Errorf("more came: %s", got)
	}
	for _, want := range []string{`msg="skipped a line that cannot be read" socket=control`, fmt.Sprintf(`msg="skipped lines that cannot be read" socket=control count=%d`, n)} {
		if strings.Count(s.log.String(), want) != 1 {
			t.Errorf("the log lacks %s:\n%s", want, s.log)
		}
	}
}

// A line that is too long ends the connection, after all that was asked before
// it is answered.
func TestControlLineTooLong(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.greet()
	// As long as it may be.
	c.say(`{"id":2,"method":"list_agents","x":"` + strings.Repeat("x", MaxLine-len(`{"id":2,"method":"list_agents","x":""}`)) + `"}`)
	if got, want := c.hear(), `{"kind":"reply","id":2,"result":{"type":"agents","data":[]}}`; got != want {
		t.Errorf("got %s", got)
	}
	c.say(`{"id":3,"method":"list_agents"}`)
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("x", 3*MaxLine)) // nobody reads all of it
	}()
	want := `{"kind":"reply","id":3,"result":{"type":"agents","data":[]}}
{"kind":"reply","id":null,"error":"the line is over 1048576 bytes, the most that is read; closing the connection","code":"body_too_large"}
`
	got := c.hear() + "\n" + c.hear() + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	_ = c.CloseWrite()
	if got := c.rest(); got != "" {
		t.Errorf("more came: %q", got)
	}
}

// What was asked is answered also when the client asks no more; a line whose
// end is missing is one.
func TestControlHalfClose(t *testing.T) {
	slow, done := make(chan bool), make(chan bool)
	s := newControlSocket(t, func(context.Context, hook.Kind, json.RawMessage) hook.Result {
		slow <- true
		<-done
		return hook.Result{OK: true}
	})
	c := s.greet()
	c.say(`{"id":2,"method":"fire_hook","params":{"hook":"cost-alert"}}`)
	if _, err := io.WriteString(c, `{"id":3,"method":"list_agents"}`); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-slow
	if got, want := c.hear(), `{"kind":"reply","id":3,"result":{"type":"agents","data":[]}}`; got != want {
		t.Errorf("got %s", got)
	}
	close(done)
	if got, want := c.rest(), `{"kind":"reply","id":2,"result":{"type":"hook","data":{"ok":true,"errors":[]}}}`+"\n"; got != want {
		t.Errorf("got %s", got)
	}
	waitFor(t, "the client is forgotten", func() bool { return s.control.Stats().Clients == 0 })
}

// At the end, what is under way is ended and answered, and then clients are
// told.
func TestControlShutdown(t *testing.T) {
	slow := make(chan bool)
	s := newControlSocket(t, func(ctx context.Context, _ hook.Kind, _ json.RawMessage) hook.Result {
		close(slow)
		<-ctx.Done()
		return hook.Failed(hook.Failure{Script: "a.sh", Reason: "stopped"})
	})
	strange, quiet, busy := s.connect(), s.greet(), s.greet()
	busy.say(`{"id":2,"method":"fire_hook","params":{"hook":"cost-alert"}}`)
	<-slow
	s.stop()
	const goodbye = `{"kind":"reply","id":null,"error":"the relay is shutting down","code":"busy"}` + "\n"
	if got := strange.rest(); got != "" {
		t.Errorf("who did not say hello was told %s", got)
	}
	if got := quiet.rest(); got != goodbye {
		t.Errorf("got %s", got)
	}
	if got, want := busy.rest(), `{"kind":"reply","id":2,"result":{"type":"hook","data":{"ok":false,"errors":[{"script":"a.sh","reason":"stopped"}]}}}`+"\n"+goodbye; got != want {
		t.Errorf("got %s", got)
	}
}

// A client that does not read its replies waits, and nobody else does; nor does
// the end.
func TestControlRepliesUnread(t *testing.T) {
	s := newControlSocket(t, nil)
	s.broker.messages = []agentrelay.Message{{ID: "m", Body: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}}
	c := s.greet()
	const n = 30 // all of them are more than may be unread
	for i := range n {
		c.say(fmt.Sprintf(`{"id":%d,"method":"recent","params":{"agent":"a"}}`, i))
	}
	other := s.greet()
	other.ask(`{"id":2,"method":"requeue","params":{"message_id":"m"}}`)
	for i := range n {
		if got, want := c.hear(), fmt.Sprintf(`{"kind":"reply","id":%d,`, i); !strings.HasPrefix(got, want) {
			t.Fatalf("got %.100s", got)
		}
	}
	// And once more, for the end.
	for i := range n {
		c.say(fmt.Sprintf(`{"id":%d,"method":"recent","params":{"agent":"a"}}`, i))
	}
	waitFor(t, "as much is unread as may be", func() bool {
		s.control.mu.RLock()
		defer s.control.mu.RUnlock()
		for o := range s.control.outs {
			o.mu.Lock()
			full := o.unread > maxUnread
			o.mu.Unlock()
			if full {
				return true
			}
		}
		return false
	})
	s.stop()
}

// A client may take longer to read than a new connection may.
func TestControlPatience(t *testing.T) {
	control := NewControl(ControlOptions{Broker: &recorder{messages: []agentrelay.Message{{Body: json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)}}}})
	s := &controlSocket{fixture: newFixture(t, Options{Serve: func(ctx context.Context, c *Conn) {
		c.SetWriteTimeout(1)
		control.Serve(ctx, c)
	}})}
	c := s.connect()
	c.say(helloLine, `{"id":2,"method":"recent","params":{"agent":"a"}}`)
	c.hear()
	if got := c.hear(); len(got) < 4<<20 {
		t.Errorf("got %d bytes", len(got))
	}
}

// A client that is gone is noticed when something is written to it, and what
// is done for it ends.
func TestControlGone(t *testing.T) {
	slow, ended := make(chan bool), make(chan bool)
	s := newControlSocket(t, func(ctx context.Context, _ hook.Kind, _ json.RawMessage) hook.Result {
		slow <- true
		<-ctx.Done()
		close(ended)
		return hook.Failed()
	})
	c := s.greet()
	c.ask(`{"id":2,"method":"subscribe"}`)
	c.say(`{"id":3,"method":"fire_hook","params":{"hook":"cost-alert"}}`)
	<-slow
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is noticed", func() bool {
		s.control.ConfigReloaded()
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	waitFor(t, "it is forgotten", func() bool { return s.control.Stats() == ControlStats{} })
}

const (
	// The least that a client of the control socket does: it says hello, and
	// asks; then it subscribes, and prints what comes.
	pythonControl = `
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1])
f = s.makefile("rw", encoding="utf-8", newline="\n")
def call(id, method, params=None):
    q = {"id": id, "method": method}
    if params is not None:
        q["params"] = params
    f.write(json.dumps(q) + "\n")
    f.flush()
    while True:
        answer = json.loads(f.readline())
        if answer["kind"] == "reply" and answer["id"] == id:
            return answer.get("error") or answer["result"]
assert call(1, "hello", {"version": 2}) == "the app speaks protocol 2, this daemon 1; update the older one"
assert call(2, "hello", {"version": 1})["data"]["version"] == 1
assert [a["agent"] for a in call(3, "list_agents")["data"]] == ["alpha"]
assert call(4, "get_agent", {"agent": "beta"}) == "no such agent"
assert call(5, "subscribe", {"events": ["config_reloaded"]}) == {"type": "ok"}
assert call(6, "reload") == {"type": "ok"}
event = json.loads(f.readline())
assert event["kind"] == "event" and event["event"] == "config_reloaded" and event["seq"] == 1, event
print("well")
`
	nodeControl = `
const s = require("net").createConnection(process.argv[1])
let id = 0, text = "", waiting = new Map(), events = []
const call = (method, params) => new Promise(done => {
  waiting.set(++id, done)
  s.write(JSON.stringify({ id, method, params }) + "\n")
})
const heard = line => {
  const m = JSON.parse(line)
  if (m.kind === "event") { events.push(m.event + m.seq); finish() }
  else waiting.get(m.id)(m.error ?? m.result)
}
s.on("data", d => {
  text += d
  const lines = text.split("\n")
  text = lines.pop()
  lines.forEach(heard)
})
let reloaded = false
const finish = () => { if (reloaded && events.join() === "config_reloaded1") { console.log("well"); s.destroy() } }
;(async () => {
  const [hello, agents] = await Promise.all([call("hello", { version: 1 }), call("list_agents")])
  if (hello.data.version !== 1 || agents.data[0].agent !== "alpha") throw hello
  if (await call("get_agent", { agent: "beta" }) !== "no such agent") throw "get_agent"
  await call("subscribe")
  await call("reload")
  reloaded = true
  finish()
})()
`
)

// Clients that are written from PROTOCOL.md alone.
func TestControlPeers(t *testing.T) {
	for name, args := range map[string][]string{"python3": {"-c", pythonControl}, "node": {"-e", nodeControl}} {
		t.Run(name, func(t *testing.T) {
			path := findPeer(t, name)
			s := newControlSocket(t, nil)
			s.broker.knows(broker.AgentInfo{Agent: "alpha"})
			out, err := exec.CommandContext(t.Context(), path, append(args, s.Path())...).CombinedOutput()
			if err != nil || string(out) != "well\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	t.Run("nc", func(t *testing.T) {
		path := findPeer(t, "nc")
		s := newControlSocket(t, nil)
		s.broker.knows(broker.AgentInfo{Agent: "alpha"})
		cmd := exec.CommandContext(t.Context(), path, "-N", "-U", s.Path())
		cmd.Stdin = strings.NewReader(helloLine + "\n" + `{"id":2,"method":"list_agents"}` + "\n")
		out, err := cmd.Output()
		if err != nil || strings.Count(string(out), "\n") != 2 || !strings.HasPrefix(string(out), helloAnswer+"\n"+`{"kind":"reply","id":2,"result":{"type":"agents","data":[{"agent":"alpha",`) {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// FuzzControlLine: no line takes the server down, or is answered to another id
// than it has.
func FuzzControlLine(f *testing.F) {
	for _, line := range []string{
		helloLine, `{"id":2,"method":"update_agent","params":{"agent":"b","description":null,"allowed_targets":["a"],"max_queued":5}}`,
		`{"id":1`, `{"id":1,"method":`, "\xff", `{"id":1e9,"id":"x"}`, `{"id":3,"method":"send","params":{"from":"a","to":"b","body":{"x":[1]},"kind":"reply","reply_to":"c"}}`,
		`{"id":3,"method":"status","params":{"agent":"b","ids":["a"]}}`, `{"id":3,"method":"add_key","params":{"agent":"b","not_after":"2027-01-31T12:00:00Z"}}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		line = []byte(strings.ReplaceAll(string(line), "\n", " "))
		r, err := parseControlRequest(line)
		if r.id != "" && !json.Valid([]byte(r.id)) {
			t.Fatalf("id %q", r.id)
		}
		if err == nil && (r.id == "" || !json.Valid(line)) {
			t.Fatalf("%q was read as %+v", line, r)
		}
		if patch, err := r.params.patch(); err == nil {
			for _, name := range []string{"description", "allowed_targets", "max_queued"} {
				raw, there := r.params.Get(name)
				set, value := patchState(patch, name)
				if set != there || value == (string(raw) == "null" || !there) {
					t.Fatalf("%s of %q: set %t, value %t", name, line, set, value)
				}
			}
		}
		control := NewControl(ControlOptions{
			Broker: &recorder{}, Reload: func(context.Context) ([]string, error) { return nil, nil },
			Hooks: fired(func(context.Context, hook.Kind, json.RawMessage) hook.Result { return hook.Result{OK: true} }),
		})
		s := &session{control: control, conn: &Conn{server: &Server{}}, out: control.join(), sends: make(chan func(), 1), greeted: true}
		s.out.begin()
		s.handle(t.Context(), line)
		close(s.sends)
		for send := range s.sends {
			send()
		}
		s.busy.Wait()
		control.leave(s.out)
		var out strings.Builder
		if err := s.out.write(&out); err != nil {
			t.Fatal(err)
		}
		if out.Len() == 0 && r.id == "" {
			return
		}
		var answer struct {
			Kind   string           `json:"kind"`
			ID     json.RawMessage  `json:"id"`
			Result *json.RawMessage `json:"result"`
			Error  *string          `json:"error"`
		}
		if strings.Count(out.String(), "\n") != 1 || json.Unmarshal([]byte(out.String()), &answer) != nil ||
			answer.Kind != "reply" || string(answer.ID) != r.id || (answer.Result == nil) == (answer.Error == nil) {
			t.Fatalf("%q was answered %q", line, out.String())
		}
	})
}

// patchState tells of one member whether it is to change, and to something.
func patchState(p broker.AgentPatch, name string) (set, value bool) {
	switch name {
	case "description":
		return p.Description.Set, p.Description.Value != nil
	case "allowed_targets":
		return p.AllowedTargets.Set, p.AllowedTargets.Value != nil
	}
	return p.MaxQueued.Set, p.MaxQueued.Value != nil
}
