// Package hook is the vocabulary of hooks: the kinds of events that scripts
// are run for, and what came of one. It stands apart because the dispatcher,
// the sockets, the broker and the client all speak of these, and may not
// import each other. It does no I/O.
package hook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Kind names a kind of event, and the directory of the scripts that run for
// it. One that came from outside is to be checked with Err.
type Kind string

// The kinds.
const (
	PreMessage    Kind = "pre-message"
	PostMessage   Kind = "post-message"
	CostAlert     Kind = "cost-alert"
	UpdateApplied Kind = "update-applied"
)

// Kinds lists every kind, in the order in which they are shown.
func Kinds() []Kind { return []Kind{PreMessage, PostMessage, CostAlert, UpdateApplied} }

// maxShownKind is how many bytes of an unknown kind an error quotes.
const maxShownKind = 64

// Err says that k is no kind; nil if it is one.
func (k Kind) Err() error {
	if slices.Contains(Kinds(), k) {
		return nil
	}
	shown := string(k)
	if len(shown) > maxShownKind {
		cut := maxShownKind
		for cut > 0 && !utf8.RuneStart(shown[cut]) {
			cut--
		}
		shown = shown[:cut] + "…"
	}
	return fmt.Errorf("unknown hook kind %q; want one of: %s", shown, kindNames())
}

func kindNames() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// NoScript stands for the script in failures that are no script's fault.
const NoScript = "-"

// Failure is one entry of an answer: why a script failed, or was not run.
type Failure struct {
	// Script is a bare file name, or NoScript.
	Script string `json:"script"`
	// Code is the exit status of a script that exited non-zero, -1 when a
	// signal ended it, 0 otherwise.
	Code int `json:"code,omitempty"`
	// StderrTail is the end of what the script wrote to standard error: valid
	// UTF-8 of at most 1024 bytes. It may quote the payload, so it is not for
	// a log, nor for others than the one who fired.
	StderrTail string `json:"stderr_tail,omitempty"`
	// Reason is why there is no exit status to speak for itself.
	Reason string `json:"reason,omitempty"`
}

// BadRequest is the failure of a request that cannot be understood.
func BadRequest(problem string) Failure {
	return Failure{Script: NoScript, Reason: "invalid JSON request: " + problem}
}

// Run is one execution of a script that was tried.
type Run struct {
	Script     string
	Code       int
	StderrTail string
	Reason     string
	// Took is the time from before the start to the end, including the wait
	// for the rest of standard error.
	Took time.Duration
}

// Failure returns what an answer says of the run, if it failed.
func (r Run) Failure() (f Failure, failed bool) {
	return Failure{Script: r.Script, Code: r.Code, StderrTail: r.StderrTail, Reason: r.Reason}, r.Code != 0 || r.Reason != ""
}

// Result is what came of one event.
type Result struct {
	// OK is false if anything failed.
	OK bool `json:"ok"`
	// Errors has an entry for each script that failed, in lexical order.
	Errors []Failure `json:"errors"`

	// ID is the event's, as its scripts saw it; "" if nothing was to be run.
	ID string `json:"-"`
	// Runs has an entry for each script that was tried, in lexical order.
	Runs []Run `json:"-"`
}

// Failed is the result of an event of which nothing was run.
func Failed(failures ...Failure) Result { return Result{Errors: failures} }

// AppendJSON appends the answer as JSON of at most limit bytes; failures that
// do not fit are left out at the end, OK stays as it is. A single failure
// fits into 32 KiB.
func (r Result) AppendJSON(b []byte, limit int) []byte {
	start := len(b)
	b = append(b, `{"ok":`...)
	if r.OK {
		b = append(b, `true,"errors":[`...)
	} else {
		b = append(b, `false,"errors":[`...)
	}
	for i, f := range r.Errors {
		fits := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		b = f.appendJSON(b)
		if len(b)-start+len("]}") > limit {
			b = b[:fits]
			break
		}
	}
	return append(b, "]}"...)
}

// MarshalJSON is AppendJSON without a limit.
func (r Result) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil, 1<<30), nil }

func (f Failure) appendJSON(b []byte) []byte {
	b = agentrelay.AppendString(append(b, `{"script":`...), f.Script)
	if f.Code != 0 {
		b = fmt.Appendf(b, `,"code":%d`, f.Code)
	}
	if f.StderrTail != "" {
		b = agentrelay.AppendString(append(b, `,"stderr_tail":`...), f.StderrTail)
	}
	if f.Reason != "" {
		b = agentrelay.AppendString(append(b, `,"reason":`...), f.Reason)
	}
	return append(b, '}')
}

// Sample is a payload with the members that a kind's scripts may rely on, to
// try them with. Its values are made up.
func Sample(k Kind, now time.Time) json.RawMessage {
	b := append(agentrelay.AppendTime([]byte(`{"timestamp":"`), now), `",`...)
	switch k {
	case PreMessage:
		b = append(b, `"channel":"relay","user_id":"alpha","message":"hello","message_id":"sample","from":"alpha","to":"beta","kind":"message","reply_to":null,"body":{"text":"hello"}}`...)
	case PostMessage:
		b = append(b, `"channel":"relay","user_id":"beta","duration_ms":12,"message_id":"sample","from":"alpha","to":"beta","kind":"message"}`...)
	case CostAlert:
		b = append(b, `"threshold_usd":10,"spent_usd":12.5,"window":"daily"}`...)
	case UpdateApplied:
		return append(agentrelay.AppendTime([]byte(`{"kind":"binary","staged_at":"/var/tmp/sample","filename":"sample.tar.gz","sha256":"`+
			strings.Repeat("0", 64)+`","release_version":"1.2.3","timestamp":"`), now), `"}`...)
	default:
		return json.RawMessage(`{}`)
	}
	return b
}
