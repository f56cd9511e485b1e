//go:build !windows

package socket

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// hookSocket is a hook socket before a real dispatcher.
type hookSocket struct {
	*fixture
	dispatcher *hooks.Dispatcher
	dir        string
}

func newHookSocket(t testing.TB, o hooks.Options) *hookSocket {
	t.Helper()
	h := &hookSocket{dir: filepath.Join(t.TempDir(), "hooks.d")}
	o.Dir = h.dir
	if o.Timeout == 0 {
		o.Timeout = time.Minute // longer than any test
	}
	var err error
	if h.dispatcher, err = hooks.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.dispatcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	h.fixture = newFixture(t, Options{Serve: HookHandler(h.dispatcher)})
	return h
}

// install makes a shell script a hook. It runs in the kind's directory.
func (h *hookSocket) install(kind hook.Kind, name, script string) {
	h.t.Helper()
	path := filepath.Join(h.dir, string(kind), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

const okAnswer = `{"ok":true,"errors":[]}` + "\n"

// badRequest is the answer to what cannot be understood.
func badRequest(problem string) string {
	return string(hook.Failed(hook.BadRequest(problem)).AppendJSON(nil, 1000)) + "\n"
}

func TestAnswers(t *testing.T) {
	h := newHookSocket(t, hooks.Options{})
	h.install(hook.PreMessage, "00-fail.sh", "echo boom >&2\nexit 7\n")
	h.install(hook.CostAlert, "echo.sh", "cat > echo.out\n")
	const (
		failed  = `{"ok":false,"errors":[{"script":"00-fail.sh","code":7,"stderr_tail":"boom"}]}` + "\n"
		unknown = `unknown hook kind "x"; want one of: pre-message, post-message, cost-alert, update-applied`
		object  = `it must be an object, {"kind":…,"payload":{…}}`
	)
	for request, want := range map[string]string{
		`{"kind":"post-message","payload":{}}`:                                  okAnswer,
		`{"kind":"post-message"}`:                                               okAnswer,
		`{"kind":"post-message","payload":null}`:                                okAnswer,
		` { "x":[1,{}], "payload": {"a":1}, "kind":"post-message", "Kind":3 } `: okAnswer,
		`{"kind":"x","kind":"post-message"}`:                                    okAnswer,
		`{"kind":"pre-message","payload":{"message":"hello"}}`:                  failed,
		`{"kind":"pre\u002dmessage"}` + "\r":                                    failed,
		`{"kind":"cost-alert","payload":{"n": 1e400, "n": "é"}}`:                okAnswer,
		`not-json`:                             badRequest("invalid character 'o' in literal null (expecting 'u')"),
		``:                                     badRequest("unexpected end of JSON input"),
		`{"kind":"post-message"} {}`:           badRequest("invalid character '{' after top-level value"),
		`{"kind":"post-message"`:               badRequest("unexpected end of JSON input"),
		`null`:                                 badRequest(object),
		`[]`:                                   badRequest(object),
		`"pre-message"`:                        badRequest(object),
		`7`:                                    badRequest(object),
		`{}`:                                   badRequest(`"kind" is missing`),
		`{"KIND":"post-message"}`:              badRequest(`"kind" is missing`),
		`{"kind":null}`:                        badRequest(`"kind" is missing`),
		`{"kind":["post-message"]}`:            badRequest(`"kind" must be a string`),
		`{"kind":"x"}`:                         badRequest(unknown),
		`{"kind":"x","payload":7}`:             badRequest(unknown),
		`{"kind":"post-message","payload":[]}`: badRequest("the payload must be a JSON object, such as {}"),
		`{"kind":"post-message","payload":"text"}`:   badRequest("the payload must be a JSON object, such as {}"),
		"{\"kind\":\"post-message\",\"x\":\"\xff\"}": badRequest("it is not valid UTF-8"),
	} {
		if got := h.ask(request + "\n"); got != want {
			t.Errorf("%s\ngot  %swant %s", request, got, want)
		}
	}
	got, err := os.ReadFile(filepath.Join(h.dir, "cost-alert", "echo.out"))
	if want := `{"n":1e400,"n":"é"}`; err != nil || string(got) != want {
		t.Errorf("the script got %s, %v, want %s", got, err, want)
	}
}

// How a request arrives makes no difference.
func TestFraming(t *testing.T) {
	h := newHookSocket(t, hooks.Options{})
	const request = `{"kind":"post-message","payload":{"a":"é"}}`
	pieces := func(n int, end string) func(*net.UnixConn) {
		return func(conn *net.UnixConn) {
			for rest := request + end; rest != ""; rest = rest[min(n, len(rest)):] {
				if _, err := io.WriteString(conn, rest[:min(n, len(rest))]); err != nil {
					t.Error(err)
				}
			}
			if end == "" {
				_ = conn.CloseWrite()
			}
		}
	}
	long := func(n int) func(*net.UnixConn) {
		return func(conn *net.UnixConn) {
			line := `{"kind":"post-message","x":"` + strings.Repeat("x", n-len(`{"kind":"post-message","x":""}`)) + `"}`
			if _, err := io.WriteString(conn, line+"\n"); err != nil {
				t.Errorf("a client that writes before it reads: %v", err)
			}
		}
	}
	for name, c := range map[string]struct {
		send func(*net.UnixConn)
		want string
	}{
		"at once":                  {pieces(1000, "\n"), okAnswer},
		"byte by byte":             {pieces(1, "\n"), okAnswer},
		"without a newline":        {pieces(1000, ""), okAnswer},
		"bytes without a newline":  {pieces(1, ""), okAnswer},
		"another request after it": {pieces(1000, "\nnot-json\n"), okAnswer},
		"nothing":                  {func(conn *net.UnixConn) { _ = conn.CloseWrite() }, ""},
		"as long as may be":        {long(1 << 20), okAnswer},
		"a byte too long":          {long(1<<20 + 1), badRequest("line too long")},
		"much too long":            {long(16 << 20), badRequest("line too long")},
		"too long, without an end ": {func(conn *net.UnixConn) {
			_, _ = io.WriteString(conn, strings.Repeat("x", 2<<20))
			_ = conn.CloseWrite()
		}, badRequest("line too long")},
	} {
		conn := h.dial()
		c.send(conn)
		if got := readAll(t, conn); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	// A client that is gone before its answer is nobody's trouble.
	_ = h.dial().Close()
	conn := h.dial()
	pieces(1000, "\n")(conn)
	_ = conn.Close()
	if got := h.ask(request + "\n"); got != okAnswer {
		t.Errorf("after clients that went: %q", got)
	}
}

// firing is a dispatcher of which only the answer matters.
type firing func(context.Context, hook.Kind, json.RawMessage) hook.Result

func (f firing) Fire(ctx context.Context, k hook.Kind, p json.RawMessage) hook.Result {
	return f(ctx, k, p)
}

func TestSlowLine(t *testing.T) {
	never := firing(func(context.Context, hook.Kind, json.RawMessage) hook.Result {
		t.Error("something was fired")
		return hook.Result{}
	})
	f := newFixture(t, Options{Serve: hookHandler{never, 50 * time.Millisecond}.serve})
	for sent, want := range map[string]string{
		"":                        "",
		`{"kind":"post-message"}`: badRequest("the line did not end within 50ms"),
	} {
		if got := f.ask(sent); got != want {
			t.Errorf("%q: got %q, want %q", sent, got, want)
		}
	}
	// A line that is too long is not waited for either. How much of it is
	// there in time is up to the machine.
	conn := f.dial()
	_, _ = io.WriteString(conn, strings.Repeat("x", MaxLine+1))
	got, _ := io.ReadAll(conn)
	if s := string(got); s != badRequest("line too long") && s != badRequest("the line did not end within 50ms") {
		t.Errorf("got %q", s)
	}
	if HookHandler(never) == nil || lineTimeout != 5*time.Second {
		t.Errorf("clients have %s", lineTimeout)
	}
}

// An answer is less than 64 KiB, however much failed.
func TestLongAnswer(t *testing.T) {
	var all []hook.Failure
	for i := range 2000 {
		all = append(all, hook.Failure{Script: fmt.Sprintf("%04d", i), Code: 1, StderrTail: "boom"})
	}
	f := newFixture(t, Options{Serve: HookHandler(firing(func(_ context.Context, _ hook.Kind, payload json.RawMessage) hook.Result {
		if payload != nil {
			t.Errorf("payload %s, want nothing", payload)
		}
		return hook.Failed(all...)
	}))})
	got := f.ask(`{"kind":"pre-message","payload":null}` + "\n")
	var r hook.Result
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if len(got) >= 64<<10 || len(got) < 64<<10-60 || r.OK || r.Errors[len(r.Errors)-1] != all[len(r.Errors)-1] {
		t.Errorf("%d bytes, ok %t, %d errors", len(got), r.OK, len(r.Errors))
	}
}

// Neither a hook that hangs nor clients that send nothing delay those whose
// events have nothing to run.
func TestNobodyIsDelayed(t *testing.T) {
	h := newHookSocket(t, hooks.Options{MaxConcurrent: 1})
	h.install(hook.PreMessage, "hang.sh", "echo > started.out; exec sleep 1000\n")
	for range 20 {
		h.dial()
	}
	var hung sync.WaitGroup
	for range 20 {
		hung.Go(func() {
			want := `{"script":"hang.sh","reason":"stopped: the relay is shutting down"}`
			if got := h.ask(`{"kind":"pre-message"}` + "\n"); !strings.Contains(got, want) && got != `{"ok":false,"errors":[{"script":"-","reason":"stopped: the relay is shutting down"}]}`+"\n" {
				t.Errorf("an event that hung: %s", got)
			}
		})
	}
	waitFor(t, "one runs and the others wait", func() bool {
		s := h.dispatcher.Stats()
		_, err := os.Stat(filepath.Join(h.dir, "pre-message", "started.out"))
		return s.Running == 1 && s.Waiting == 19 && err == nil
	})
	var served sync.WaitGroup
	for range 50 {
		served.Go(func() {
			if got := h.ask(`{"kind":"post-message","payload":{"a":1}}` + "\n"); got != okAnswer {
				t.Errorf("got %s", got)
			}
		})
	}
	served.Wait()
	if s := h.dispatcher.Stats(); s.Running != 1 || s.Waiting != 19 {
		t.Errorf("meanwhile the others ended: %+v", s)
	}
	h.stop() // ends them, with an answer
	hung.Wait()
}

// The known faults of earlier relays, over the socket.
func TestFaults(t *testing.T) {
	h := newHookSocket(t, hooks.Options{Timeout: 20 * time.Second})
	h.install(hook.PreMessage, "1-noisy.sh", "head -c 100000 /dev/zero | tr '\\0' x >&2\nexit 3\n")
	h.install(hook.PostMessage, "1-background.sh", "sleep 30 &\necho $! > pid.out\n")
	h.install(hook.CostAlert, "1-unread.sh", "exit 4\n")
	h.install(hook.UpdateApplied, "1-off.disabled", "exit 1\n")
	h.install(hook.UpdateApplied, ".off", "exit 1\n")
	h.install(hook.UpdateApplied, "off~", "exit 1\n")
	for request, want := range map[string]string{
		`{"kind":"pre-message"}`:  `{"ok":false,"errors":[{"script":"1-noisy.sh","code":3,"stderr_tail":"` + strings.Repeat("x", 1024) + `"}]}` + "\n",
		`{"kind":"post-message"}`: okAnswer,
		`{"kind":"cost-alert","payload":{"x":"` + strings.Repeat("x", 200_000) + `"}}`: `{"ok":false,"errors":[{"script":"1-unread.sh","code":4}]}` + "\n",
		`{"kind":"update-applied"}`: okAnswer,
	} {
		if got := h.ask(request + "\n"); got != want {
			t.Errorf("%.60s\ngot  %.200swant %.200s", request, got, want)
		}
	}
	// What the second one left behind lives on.
	text, err := os.ReadFile(filepath.Join(h.dir, "post-message", "pid.out"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Errorf("the process that was left behind: %v", err)
	}
	_ = process.Release()
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"pre-message","payload":{"a":12345678901234567890}}`, `{"kind":"pre-message","payload":null}`,
		`{"kind":"x"}`, `{"kind":1}`, `{"KIND":"pre-message"}`, `{"kind":"cost-alert","kind":"\u0070ost-message","payload": [1] }`,
		`not-json`, `null`, `[]`, ``, "{\"\xff\":1}", `{"kind":"update-applied","payload":{}}{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		kind, payload, problem := parseRequest(line)
		if problem != "" {
			if kind.Err() == nil || payload != nil {
				t.Errorf("%q: %s, and yet %q %s", line, problem, kind, payload)
			}
			// A refusal is an answer that can be read.
			var r hook.Result
			answer := hook.Failed(hook.BadRequest(problem)).AppendJSON(nil, maxAnswer)
			if err := json.Unmarshal(answer, &r); err != nil || len(r.Errors) != 1 {
				t.Errorf("%q is answered %s: %v", line, answer, err)
			}
			return
		}
		if err := kind.Err(); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if payload != nil && (!json.Valid(payload) || !strings.Contains(string(line), string(payload))) {
			t.Errorf("%q: the payload %q is not its own", line, payload)
		}
		// Another reader sees the same.
		var members map[string]any
		if err := json.Unmarshal(line, &members); err != nil || members["kind"] != string(kind) {
			t.Errorf("%q: kind %q, want %v, %v", line, kind, members["kind"], err)
		}
		if (payload == nil) != (members["payload"] == nil) {
			t.Errorf("%q: payload %q, want %v", line, payload, members["payload"])
		}
	})
}
