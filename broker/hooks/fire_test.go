//go:build !windows

package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/internal/hook"
)

func TestNew(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a dispatcher without a directory was made")
	}
	t.Chdir(t.TempDir())
	d, err := New(Options{Dir: "hooks.d"})
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(here, "hooks.d"); d.List().Dir != want {
		t.Errorf("hooks are in %s, want %s", d.List().Dir, want)
	}
}

func TestNothingInstalled(t *testing.T) {
	f := newFixture(t, Options{Done: func(hook.Kind, hook.Result) { t.Error("something was done") }})
	const ok = `{"ok":true,"errors":[]}`
	f.want(ok)
	if err := os.Remove(f.path("")); err != nil {
		t.Fatal(err)
	}
	f.want(ok)
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if r := f.want(ok); r.ID != "" || r.Runs != nil {
		t.Errorf("got %+v", r)
	}
	if s := f.Stats(); s.Fired != 3 || s.Failed != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestFailingScript(t *testing.T) {
	f := newFixture(t, Options{})
	f.write("00-fail.sh", "#!/bin/sh\necho boom >&2\nexit 7\n", 0o755)
	r := f.want(`{"ok":false,"errors":[{"script":"00-fail.sh","code":7,"stderr_tail":"boom"}]}`)
	if len(r.Runs) != 1 || r.Runs[0].Took <= 0 || r.ID == "" {
		t.Errorf("got %+v", r)
	}
	if s := f.Stats(); s.Fired != 1 || s.Failed != 1 || s.Running != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestManyScripts(t *testing.T) {
	f := newFixture(t, Options{})
	var names []string
	for i := 1; i <= 10; i++ {
		names = append(names, fmt.Sprintf("%02d-order", i))
	}
	names = append(names, "a-order", "B-order", "é-order")
	f.install(names...)
	r := f.want(`{"ok":false,"errors":[{"script":"03-order","code":3}]}`)
	slices.Sort(names)
	if diff := cmp.Diff(names, strings.Fields(f.read("order.out"))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	var ran []string
	for _, run := range r.Runs {
		ran = append(ran, run.Script)
	}
	if diff := cmp.Diff(names, ran); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// A megabyte of standard error, which is read as it comes.
func TestNoisyScript(t *testing.T) {
	f := newFixture(t, Options{})
	f.install("1-noisy")
	r := f.fire("")
	if len(r.Errors) != 1 || r.Errors[0].Code != 3 || r.Errors[0].Reason != "" {
		t.Fatalf("got %+v", r)
	}
	got := r.Errors[0].StderrTail
	if len(got) > 1024 || len(got) < 1000 || !strings.HasSuffix(got, "xxx\nthe end") {
		t.Errorf("%d bytes of standard error: %q", len(got), got)
	}
}

// A payload that is never read does not hold the answer.
func TestUnreadPayload(t *testing.T) {
	f := newFixture(t, Options{})
	f.install("1-unread", "2-pass")
	r := f.fire(`{"text":"` + strings.Repeat("x", 8<<20) + `"}`)
	want := []hook.Failure{{Script: "1-unread", Code: 4}}
	if diff := cmp.Diff(want, r.Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A script gets the payload's own bytes, all of them, and what it makes of
// them does not come back where nobody asked for it.
func TestPayload(t *testing.T) {
	f := newFixture(t, Options{})
	f.install("1-echo")
	long := `{"text":"` + strings.Repeat("x", 8<<20) + `"}`
	for given, want := range map[string]string{
		"":           `{}`,
		" \n":        `{}`,
		" null\n":    `{}`,
		" { } \n":    `{}`,
		long:         long,
		"{\"\":\n1}": `{"":1}`,
		`{"n": 12345678901234567890.10e+5, "a":1 ,"a": 2, "s":"<&> \u003c \/ é` + "\u2028" + ` \ud800", "o": {"x": [1, -0.0]}}`: `{"n":12345678901234567890.10e+5,"a":1,"a":2,"s":"<&> \u003c \/ é` + "\u2028" + ` \ud800","o":{"x":[1,-0.0]}}`,
	} {
		if r := f.fire(given); !r.OK {
			t.Errorf("%.80q: %+v", given, r)
		}
		if got := f.read("echo.out"); got != want {
			t.Errorf("%.80q: the script got %.80q, want %.80q", given, got, want)
		}
	}
}

func TestBadRequests(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, Options{
		Done: func(hook.Kind, hook.Result) { t.Error("something was done") },
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	f.install("1-pass")
	for payload, problem := range map[string]string{
		`[]`:           "the payload must be a JSON object, such as {}",
		`"text"`:       "the payload must be a JSON object, such as {}",
		`1`:            "the payload must be a JSON object, such as {}",
		`true`:         "the payload must be a JSON object, such as {}",
		`{`:            "the payload: unexpected end of JSON input",
		`{} {}`:        "the payload: invalid character '{' after top-level value",
		`{"a":nul}`:    "the payload: invalid character '}' in literal null (expecting 'l')",
		"{\"\xff\":1}": "the payload is not valid UTF-8",
	} {
		want := hook.Failed(hook.Failure{Script: "-", Reason: "invalid JSON request: " + problem})
		if diff := cmp.Diff(want, f.fire(payload)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", payload, diff)
		}
	}
	for _, kind := range []hook.Kind{"", "x", "../hooks.d/pre-message", "pre-message/"} {
		r := f.Fire(context.Background(), kind, nil)
		if r.OK || len(r.Errors) != 1 || r.Errors[0] != hook.BadRequest(kind.Err().Error()) {
			t.Errorf("kind %q: %+v", kind, r)
		}
		if f.Installed(kind) {
			t.Errorf("kind %q is installed", kind)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", &log)
	}
}

// An event with nothing to run waits for nobody, and enforcing events wait
// only for each other.
func TestSlots(t *testing.T) {
	f := newFixture(t, Options{MaxConcurrent: 1, MaxWaiting: 1})
	gates := map[hook.Kind]*gate{}
	for _, k := range []hook.Kind{hook.PreMessage, hook.PostMessage} {
		gates[k] = f.gated(k, "1-gate")
	}
	var all sync.WaitGroup
	defer all.Wait()
	fire := func(fire func(context.Context, hook.Kind, json.RawMessage) hook.Result, kind hook.Kind) {
		all.Go(func() {
			if r := fire(context.Background(), kind, nil); !r.OK {
				t.Errorf("%s: %+v", kind, r)
			}
		})
	}
	fire(f.Fire, hook.PreMessage)
	gates[hook.PreMessage].await(1)
	if r := f.Fire(context.Background(), hook.CostAlert, nil); !r.OK {
		t.Errorf("an event with nothing to run: %+v", r)
	}
	if s := f.Stats(); s.Running != 1 || s.Waiting != 0 {
		t.Errorf("stats %+v", s)
	}

	// Another one waits for its turn.
	waiting, cancel := context.WithCancelCause(context.Background())
	all.Go(func() {
		want := hook.Failed(hook.Failure{Script: "-", Reason: "stopped: no longer of interest"})
		if diff := cmp.Diff(want, f.Fire(waiting, hook.PostMessage, nil)); diff != "" {
			t.Errorf("an event that waited (-want +got):\n%s", diff)
		}
	})
	waitFor(t, func() error {
		if f.Stats().Waiting == 1 {
			return nil
		}
		return errNotYet
	})
	// One more is too many.
	want := hook.Failed(hook.Failure{Script: "-", Reason: "busy: 1 events wait already; fire it again later"})
	if diff := cmp.Diff(want, f.Fire(context.Background(), hook.PostMessage, nil)); diff != "" {
		t.Errorf("one event too many (-want +got):\n%s", diff)
	}
	cancel(errors.New("no longer of interest"))

	fire(f.Enforce, hook.PostMessage)
	gates[hook.PostMessage].await(1)
	gates[hook.PostMessage].open()
	gates[hook.PostMessage].awaitGone()
	fire(f.Fire, hook.PostMessage)
	gates[hook.PreMessage].open()
	gates[hook.PostMessage].await(1)
	gates[hook.PostMessage].open()
}

// What a script reads and writes is not for the log.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	var done []string
	f := newFixture(t, Options{
		Log:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Done: func(k hook.Kind, r hook.Result) { done = append(done, fmt.Sprintln(k, r.OK, len(r.Runs))) },
	})
	f.install("1-echo")
	f.write("2-fail", "#!/bin/sh\ncat >&2\nexit 7", 0o700)
	r := f.fire(`{"text":"canary"}`)
	if len(r.Errors) != 1 || !strings.Contains(r.Errors[0].StderrTail, "canary") {
		t.Fatalf("got %+v", r)
	}
	if strings.Contains(log.String(), "canary") {
		t.Errorf("the log quotes the payload:\n%s", &log)
	}
	if want := `msg="hook failed" hook=pre-message script=2-fail code=7 reason="" id=` + r.ID; strings.Count(log.String(), want) != 1 {
		t.Errorf("the log lacks %s:\n%s", want, &log)
	}
	if err := os.Remove(f.path("2-fail")); err != nil {
		t.Fatal(err)
	}
	f.fire("")
	if diff := cmp.Diff([]string{"pre-message false 2\n", "pre-message true 1\n"}, done); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}

// An event of which nothing could run is a failure like any other.
func TestRefusalIsRecorded(t *testing.T) {
	var log bytes.Buffer
	var done []hook.Result
	f := newFixture(t, Options{
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
		Done: func(_ hook.Kind, r hook.Result) { done = append(done, r) },
	})
	f.write("1-bad", "", 0o777)
	r := f.fire("")
	if diff := cmp.Diff([]hook.Result{r}, done); diff != "" || r.OK {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if !strings.Contains(log.String(), `msg="hook failed" hook=pre-message script=1-bad code=0 reason="refused: it is writable`) {
		t.Errorf("logged:\n%s", &log)
	}
	if s := f.Stats(); s.Failed != 1 {
		t.Errorf("stats %+v", s)
	}
}

// What counts is what is installed when it is the event's turn.
func TestRefusedWhileWaiting(t *testing.T) {
	f := newFixture(t, Options{MaxConcurrent: 1})
	g := f.gated(hook.PostMessage, "1-gate")
	f.install("1-order")
	first, second := make(chan hook.Result, 1), make(chan hook.Result, 1)
	go func() { first <- f.Fire(context.Background(), hook.PostMessage, nil) }()
	g.await(1)
	go func() { second <- f.fire("") }()
	waitFor(t, func() error {
		if f.Stats().Waiting == 1 {
			return nil
		}
		return errNotYet
	})
	f.chmod(f.path(""), 0o777)
	g.open()
	if r := <-first; !r.OK {
		t.Errorf("got %+v", r)
	}
	if r := <-second; r.OK || len(r.Errors) != 1 || r.Errors[0].Script != "-" || !strings.HasPrefix(r.Errors[0].Reason, "refused: the directory ") {
		t.Errorf("got %+v", r)
	}
}
