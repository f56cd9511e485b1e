package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestBodyText(t *testing.T) {
	for _, c := range []struct {
		kind agentrelay.Type
		body string
		want string
	}{
		{agentrelay.TypeMessage, `{"text":"hello"}`, "hello"},
		{agentrelay.TypeMessage, `{"text":""}`, `{"text":""}`},
		{agentrelay.TypeMessage, `{"text":7}`, `{"text":7}`},
		{agentrelay.TypeMessage, `{"text":"hello","n":1}`, `{"text":"hello","n":1}`},
		{agentrelay.TypeMessage, `"hello"`, "hello"},
		{agentrelay.TypeMessage, `""`, `""`},
		{agentrelay.TypeMessage, `null`, "null"},
		{agentrelay.TypeMessage, `[1, 2]`, "[1, 2]"},
		{agentrelay.TypeMessage, `{"status":"ok"}`, `{"status":"ok"}`},
		{agentrelay.TypeAck, `{"status":"ok"}`, "ok"},
		{agentrelay.TypeAck, `{"status":"error","error":"no"}`, "error: no"},
		{agentrelay.TypeAck, `{"status":"error","error":"lost","ambiguous":true}`, "error: lost (it may have been done all the same)"},
		{agentrelay.TypeAck, `{"n":1}`, `{"n":1}`},
	} {
		m := agentrelay.Message{Type: c.kind, Body: json.RawMessage(c.body)}
		if got := bodyText(&m); got != c.want {
			t.Errorf("%s %s reads %q, want %q", c.kind, c.body, got, c.want)
		}
	}
}

func TestDisplayLayout(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	page := []agentrelay.Message{
		{ID: "1", From: "a", TS: now.Add(-time.Hour), Kind: "message", Status: "queued", Body: json.RawMessage(`"no\u202e\u0007w\tthen!"`)},
		{ID: "2", From: "bob", TS: now, Kind: "request", Status: "failed", Body: json.RawMessage(`"1234567890123456789"`), Error: "x\ny", ReplyTo: "1"},
	}
	for name, c := range map[string]struct {
		d    display
		want string
	}{
		"terminal": {display{width: 12}, "" +
			"a    1 hour ago  message  queued  1\n  no\ufffd\ufffdw\n  then!\n" +
			"bob  now         request  failed  2\n  answers 1\n  error: x y\n  1234567890\n  123456789\n"},
		"too narrow to wrap": {display{width: 3}, "" +
			"a    1 hour ago  message  queued  1\n  no\ufffd\ufffdw then!\n" +
			"bob  now         request  failed  2\n  answers 1\n  error: x y\n  1234567890123456789\n"},
		"elsewhere": {display{}, "" +
			"a    2026-03-14T11:00:00Z  message  queued  1\n  no\ufffd\ufffdw then!\n" +
			"bob  2026-03-14T12:00:00Z  request  failed  2\n  answers 1\n  error: x y\n  1234567890123456789\n"},
	} {
		var out strings.Builder
		c.d.out, c.d.now = bufio.NewWriter(&out), func() time.Time { return now }
		c.d.messages(page)
		if err := c.d.flush(); err != nil || out.String() != c.want {
			t.Errorf("%s, %v:\n%q\nwant\n%q", name, err, out.String(), c.want)
		}
	}
}

// JSON that was laid out on lines of its own stays the same JSON on one line,
// whatever it is printed to.
func TestDisplayJSONLine(t *testing.T) {
	for width, want := range map[int]string{
		0:  "\"body\":{   \"a\":  [1,  \"\u009b\\t\"] }",
		80: "\"body\":{   \"a\":  [1,  \"\\u009b\\t\"] }",
	} {
		var out strings.Builder
		d := display{out: bufio.NewWriter(&out), width: width, json: true}
		d.messages([]agentrelay.Message{{ID: "1", Body: json.RawMessage("{\r\n\t\"a\":\t [1,\n\t\"\u009b\\t\"]\n}")}})
		if err := d.flush(); err != nil {
			t.Fatal(err)
		}
		line := out.String()
		if !json.Valid([]byte(line)) || strings.Count(line, "\n") != 1 || !strings.Contains(line, want) {
			t.Errorf("%d columns: %q lacks %q", width, line, want)
		}
	}
}

// closedOutput is a stdout that is gone.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestDisplayTellsWhatWasNotWritten(t *testing.T) {
	for name, show := range map[string]func(*display) error{
		"messages": func(d *display) error { d.messages([]agentrelay.Message{{ID: "1"}}); return nil },
		"result":   func(d *display) error { return d.result(nil, "x") },
		"document": func(d *display) error { return d.document(1) },
		"table":    func(d *display) error { return d.table(nil, [][]string{{"x"}}) },
	} {
		d := &display{out: bufio.NewWriter(closedOutput{}), now: time.Now}
		if err := errors.Join(show(d), d.flush()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
