package hook

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestKindErr(t *testing.T) {
	for _, k := range Kinds() {
		if err := k.Err(); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	const names = "pre-message, post-message, cost-alert, update-applied"
	for kind, want := range map[Kind]string{
		"x":                                  `unknown hook kind "x"; want one of: ` + names,
		"":                                   `unknown hook kind ""; want one of: ` + names,
		"../pre-message":                     `unknown hook kind "../pre-message"; want one of: ` + names,
		"Pre-message":                        `unknown hook kind "Pre-message"; want one of: ` + names,
		Kind(strings.Repeat("a", 64)):        `unknown hook kind "` + strings.Repeat("a", 64) + `"; want one of: ` + names,
		Kind(strings.Repeat("a", 63) + "éé"): `unknown hook kind "` + strings.Repeat("a", 63) + `…"; want one of: ` + names,
	} {
		if err := kind.Err(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", kind, err, want)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	for want, r := range map[string]Result{
		`{"ok":true,"errors":[]}`: {OK: true},
		`{"ok":false,"errors":[{"script":"00-fail.sh","code":7,"stderr_tail":"boom"}]}`:              Failed(Failure{Script: "00-fail.sh", Code: 7, StderrTail: "boom"}),
		`{"ok":false,"errors":[{"script":"a","code":-1},{"script":"b","reason":"timed out (>5s)"}]}`: Failed(Failure{Script: "a", Code: -1}, Failure{Script: "b", Reason: "timed out (>5s)"}),
		`{"ok":false,"errors":[{"script":"-","reason":"invalid JSON request: <\"é\u2028\u0000�>"}]}`: Failed(BadRequest("<\"é\u2028\x00\xff>")),
	} {
		want = strings.Replace(want, `\u2028`, "\u2028", 1)
		got := string(r.AppendJSON(nil, 1000))
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		var back Result
		if err := json.Unmarshal([]byte(got), &back); err != nil || back.OK != r.OK || len(back.Errors) != len(r.Errors) {
			t.Errorf("%s reads back as %+v, %v", got, back, err)
		}
	}
}

func TestAppendJSONCutsAtTheEnd(t *testing.T) {
	one, two := Failure{Script: "1", Code: 1}, Failure{Script: "2", Code: 2}
	whole := `{"ok":false,"errors":[{"script":"1","code":1},{"script":"2","code":2}]}`
	first := `{"ok":false,"errors":[{"script":"1","code":1}]}`
	before := "before"
	for limit, want := range map[int]string{
		len(whole): whole, len(whole) - 1: first, len(first): first, len(first) - 1: `{"ok":false,"errors":[]}`,
	} {
		if got := string(Failed(one, two).AppendJSON([]byte(before), limit)); got != before+want {
			t.Errorf("limit %d: got %s, want %s", limit, got, want)
		}
	}
	got, err := json.Marshal(Failed(one, two))
	if err != nil || string(got) != whole {
		t.Errorf("marshalled: %s, %v", got, err)
	}
}

// The largest failure a script can cause: a name as long as a file system
// allows, and standard error of which each byte needs six.
func TestOneFailureFits(t *testing.T) {
	f := Failure{Script: strings.Repeat("\x01", 255), Code: 255, StderrTail: strings.Repeat("\x01", 1024), Reason: strings.Repeat("x", 4096)}
	if n := len(Failed(f).AppendJSON(nil, 1<<30)); n > 32<<10 {
		t.Errorf("takes %d bytes", n)
	}
}

func TestRunFailure(t *testing.T) {
	if f, failed := (Run{Script: "a", StderrTail: "chatter"}).Failure(); failed {
		t.Errorf("a run with status 0 failed: %+v", f)
	}
	for _, r := range []Run{{Script: "a", Code: 1, StderrTail: "x"}, {Script: "a", Reason: "spawn failed: x"}} {
		want := Failure{Script: r.Script, Code: r.Code, StderrTail: r.StderrTail, Reason: r.Reason}
		if f, failed := r.Failure(); !failed || f != want {
			t.Errorf("%+v: %+v, %t", r, f, failed)
		}
	}
}

// What each kind's scripts may rely on.
func TestSample(t *testing.T) {
	now := time.Date(2026, 11, 30, 4, 5, 6, 7e6, time.UTC)
	for kind, members := range map[Kind][]string{
		PreMessage:    {"timestamp", "channel", "user_id", "message", "message_id", "from", "to", "kind", "reply_to", "body"},
		PostMessage:   {"timestamp", "channel", "user_id", "duration_ms", "message_id", "from", "to", "kind"},
		CostAlert:     {"timestamp", "threshold_usd", "spent_usd", "window"},
		UpdateApplied: {"kind", "staged_at", "filename", "sha256", "release_version", "timestamp"},
		"unknown":     nil,
	} {
		var got map[string]any
		if err := json.Unmarshal(Sample(kind, now), &got); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		var names []string
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		slices.Sort(members)
		if diff := cmp.Diff(members, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		if members != nil && got["timestamp"] != "2026-11-30T04:05:06.007Z" {
			t.Errorf("%s: timestamp %v", kind, got["timestamp"])
		}
	}
}

func TestUnknownKindIsShortAndValid(t *testing.T) {
	text := Kind(strings.Repeat("é", 1<<20)).Err().Error()
	if len(text) > 300 || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
