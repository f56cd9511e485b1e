package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// scriptedInbox answers polls one after the other as it is told, and ends the
// watch when there are no more.
type scriptedInbox struct {
	calls     []string
	handshake []error
	register  []error
	polls     []func() (client.Page, error)
	end       context.CancelFunc
}

func next(list *[]error) error {
	if len(*list) == 0 {
		return nil
	}
	err := (*list)[0]
	*list = (*list)[1:]
	return err
}

func (r *scriptedInbox) Handshake(context.Context) (client.Broker, error) {
	r.calls = append(r.calls, "handshake")
	return client.Broker{}, next(&r.handshake)
}

func (r *scriptedInbox) Register(context.Context) error {
	r.calls = append(r.calls, "register")
	return next(&r.register)
}

func (r *scriptedInbox) Poll(ctx context.Context, o client.PollOptions) (client.Page, error) {
	r.calls = append(r.calls, fmt.Sprintf("poll %q %v", o.Since, o.Wait))
	if len(r.polls) == 0 {
		r.end()
		return client.Page{}, ctx.Err()
	}
	poll := r.polls[0]
	r.polls = r.polls[1:]
	return poll()
}

type watched struct {
	calls          []string
	stdout, stderr string
	pauses         []time.Duration
	err            error
}

// watch runs a watcher over what the relay is told to answer. Each poll takes
// as long as took says.
func watch(t *testing.T, r *scriptedInbox, took time.Duration) watched {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	r.end = end
	var stdout, stderr bytes.Buffer
	var got watched
	now := time.Unix(0, 0)
	w := watcher{
		app: &app{stderr: &stderr}, inbox: r, out: &stdout, cursor: "start",
		now:   func() time.Time { now = now.Add(took); return now },
		pause: func(_ context.Context, d time.Duration) { got.pauses = append(got.pauses, d) },
	}
	got.err = w.run(ctx)
	got.calls, got.stdout, got.stderr = r.calls, stdout.String(), stderr.String()
	return got
}

func page(cursor string, ids ...string) func() (client.Page, error) {
	p := client.Page{Cursor: cursor}
	for _, id := range ids {
		p.Messages = append(p.Messages, agentrelay.Message{ID: id})
	}
	return func() (client.Page, error) { return p, nil }
}

func fails(err error) func() (client.Page, error) {
	return func() (client.Page, error) { return client.Page{}, err }
}

func TestWatchFollowsTheCursor(t *testing.T) {
	got := watch(t, &scriptedInbox{polls: []func() (client.Page, error){
		page("c1", "a", "b"), page("c1"), page("c2", "c"),
	}}, watchWait)
	want := []string{"register", `poll "start" 30s`, `poll "c1" 30s`, `poll "c1" 30s`, `poll "c2" 30s`}
	if diff := cmp.Diff(want, got.calls); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if ids := idsOf(got.stdout); ids != "a b c" || got.stderr != "" || len(got.pauses) > 0 || !errors.Is(got.err, context.Canceled) {
		t.Errorf("printed %s, told %q, paused %v, %v", ids, got.stderr, got.pauses, got.err)
	}
}

func idsOf(lines string) string {
	var ids []string
	for line := range strings.Lines(lines) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":"`), `"`)
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func TestWatchOutlastsAnOutage(t *testing.T) {
	away := fmt.Errorf("nobody there: %w", client.ErrUnreachable)
	got := watch(t, &scriptedInbox{
		handshake: []error{away, away, away, away, client.ErrNotRelay, nil},
		register:  []error{nil, client.ErrTimeout, nil},
		polls:     []func() (client.Page, error){page("c1", "a"), fails(away), page("c1"), page("c2", "b"), fails(away), page("c2")},
	}, watchWait)
	s := time.Second
	if diff := cmp.Diff([]time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s, 2 * s}, got.pauses); diff != "" {
		t.Errorf("pauses (-want +got)\n%s", diff)
	}
	h := "handshake"
	want := []string{
		"register", `poll "start" 30s`, `poll "c1" 30s`, h, h, h, h, h, h, "register", h, "register",
		`poll "c1" 0s`, `poll "c1" 30s`, `poll "c2" 30s`, h, "register", `poll "c2" 0s`, `poll "c2" 30s`,
	}
	if diff := cmp.Diff(want, got.calls); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if ids := idsOf(got.stdout); ids != "a b" {
		t.Errorf("printed %s", ids)
	}
	once := "nobody there: no broker answers; trying again\nthe broker is back\n"
	if got.stderr != once+once {
		t.Errorf("told %q", got.stderr)
	}
}

func TestWatchHeedsRetryAfter(t *testing.T) {
	busy := &agentrelay.Error{Code: agentrelay.CodeBusy, RetryAfter: time.Second}
	locked := &agentrelay.Error{Code: agentrelay.CodeLocked, RetryAfter: 5 * time.Minute}
	got := watch(t, &scriptedInbox{polls: []func() (client.Page, error){fails(busy), fails(locked), page("c")}}, watchWait)
	if diff := cmp.Diff([]time.Duration{2 * time.Second, 5 * time.Minute}, got.pauses); diff != "" {
		t.Errorf("pauses (-want +got)\n%s", diff)
	}
}

// A broker that shuts down ends a wait early: watch must not press it, and
// must register with the one that comes next.
func TestWatchTakesAnEarlyEndForAShutdown(t *testing.T) {
	got := watch(t, &scriptedInbox{polls: []func() (client.Page, error){page("start"), page("start")}}, time.Second)
	want := []string{"register", `poll "start" 30s`, "handshake", "register", `poll "start" 0s`, `poll "start" 30s`}
	if diff := cmp.Diff(want, got.calls); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(got.pauses) != 1 || !strings.Contains(got.stderr, "going away") {
		t.Errorf("paused %v, told %q", got.pauses, got.stderr)
	}
}

func TestWatchTellsOfAReset(t *testing.T) {
	got := watch(t, &scriptedInbox{polls: []func() (client.Page, error){func() (client.Page, error) {
		return client.Page{Messages: []agentrelay.Message{{ID: "a"}}, Cursor: "c", Reset: true}, nil
	}}}, watchWait)
	if idsOf(got.stdout) != "a" || !strings.Contains(got.stderr, "does not know this cursor") {
		t.Errorf("printed %q, told %q", got.stdout, got.stderr)
	}
}

func TestWatchGivesUp(t *testing.T) {
	for name, r := range map[string]*scriptedInbox{
		"nobody at first":        {register: []error{client.ErrUnreachable}},
		"another secret":         {polls: []func() (client.Page, error){fails(agentrelay.ErrUnauthenticated)}},
		"another secret, later":  {register: []error{nil, agentrelay.ErrUnauthenticated}, polls: []func() (client.Page, error){fails(client.ErrUnreachable)}},
		"something unforeseen":   {polls: []func() (client.Page, error){fails(io.ErrUnexpectedEOF)}},
		"forbidden by the other": {polls: []func() (client.Page, error){page("c"), fails(agentrelay.ErrForbidden)}},
	} {
		if got := watch(t, r, watchWait); got.err == nil || errors.Is(got.err, context.Canceled) {
			t.Errorf("%s: %v after %v", name, got.err, got.calls)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWatchEndsWithItsOutput(t *testing.T) {
	w := watcher{
		app: &app{stderr: io.Discard}, inbox: &scriptedInbox{polls: []func() (client.Page, error){page("c", "a")}},
		out: brokenWriter{}, now: time.Now, pause: pause,
	}
	if err := w.run(t.Context()); !errors.Is(err, io.ErrClosedPipe) || w.cursor != "" {
		t.Errorf("%v, cursor %q", err, w.cursor)
	}
}

func TestPause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pause(ctx, time.Nanosecond)
	cancel()
	pause(ctx, time.Hour)
}

func TestPrintMessage(t *testing.T) {
	m := agentrelay.Message{ID: "a", Body: []byte("{\n \"x\":\r\n\"\\n\u2028\"}"), TS: time.Unix(0, 0)}
	var out bytes.Buffer
	if err := printMessage(&out, &m); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\"body\":{  \"x\":  \"\\n\u2028\"},") || strings.Count(out.String(), "\n") != 1 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("printed %q", out.String())
	}
}

// program runs the whole program in this process until stop is called, which
// returns its exit status.
func program(t *testing.T, env []string, stdout io.Writer, args ...string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	var stderr bytes.Buffer
	go func() { done <- run(ctx, args, env, strings.NewReader(""), stdout, &stderr) }()
	stopped := false
	stop = func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		status := <-done
		if t.Failed() {
			t.Logf("%v: status %d\n%s", args, status, &stderr)
		}
		return status
	}
	t.Cleanup(func() { stop() })
	return stop
}

func TestWatchAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.yaml")
	if err := writeConfig(path, address, "data_dir: "+filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	env := []string{"AGENT_RELAY_CONFIG=" + path, "HOME=" + dir}
	start := func() (stop func() int) {
		stop = program(t, env, io.Discard, "serve")
		if err := waitFor(func() error { return healthy("http://" + address) }); err != nil {
			t.Fatal(err)
		}
		return stop
	}
	send := func(id string) {
		if err := waitFor(func() error {
			var stderr bytes.Buffer
			if status := run(t.Context(), []string{"send", "beta", id, "--id", id, "--agent", "alpha"}, env, nil, io.Discard, &stderr); status != 0 {
				return errors.New(stderr.String())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}

	stopBroker := start()
	r, w := io.Pipe()
	defer r.Close()
	lines := bufio.NewScanner(r)
	stopWatch := program(t, env, w, "watch", "--agent", "beta")
	expect := func(id string) {
		t.Helper()
		if !lines.Scan() || idsOf(lines.Text()) != id {
			t.Fatalf("watch prints %q, want %s", lines.Text(), id)
		}
	}
	send("one")
	expect("one")
	if status := stopBroker(); status != 0 {
		t.Fatalf("the broker ends with %d", status)
	}
	stopBroker = start()
	send("two")
	expect("two")
	send("three")
	expect("three")
	if status := stopWatch(); status != 0 {
		t.Errorf("watch ends with %d", status)
	}
	if status := stopBroker(); status != 0 {
		t.Errorf("the broker ends with %d", status)
	}
}
