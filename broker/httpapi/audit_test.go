package httpapi_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// rejecting are hooks that say no.
type rejecting struct{}

func (rejecting) Installed(kind hook.Kind) bool             { return kind == hook.PreMessage }
func (rejecting) FireLater(hook.Kind, json.RawMessage) bool { return true }
func (rejecting) Enforce(context.Context, hook.Kind, json.RawMessage) hook.Result {
	return hook.Result{Errors: []hook.Failure{{Script: "no.sh", Code: 1}}}
}

// What concerns security is logged in a group of its own, without bodies, and
// with nothing that could forge a line.
func TestAudit(t *testing.T) {
	for name, format := range map[string]func(*syncBuffer) slog.Handler{
		"text": func(b *syncBuffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON": func(b *syncBuffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			r := newRelay(t, setup{log: format(&log), maxQueued: 1})
			ann, ben := r.agent("ann"), r.agent("ben")
			r.wantBad("eve", 5)
			r.do(good("eve")).wantLocked("300")
			r.clock.Advance(5*time.Minute + time.Second)
			r.do(good("eve")).want(http.StatusOK, nil)
			ann.send(ben, "m1")
			ann.post("/messages", `{"to":"ben","body":"c4n4ry"}`).want(http.StatusTooManyRequests, nil)
			r.do(call{agent: "eve\x1b[31m", target: "/peers"})
			r.do(call{agent: "ann", target: "/x%0ay%1b", signature: "00"})
			text := log.String()
			for _, want := range []string{"bad_signature", "agent locked", "agent unlocked", "quota reached", "audit"} {
				if !strings.Contains(text, want) {
					t.Errorf("the log lacks %q:\n%s", want, text)
				}
			}
			for line := range strings.Lines(text) {
				for _, word := range []string{"agent locked", "agent unlocked", "quota reached", "request refused"} {
					if strings.Contains(line, word) && !strings.Contains(line, "audit") {
						t.Errorf("this is not in the group: %s", line)
					}
				}
				if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return c < 0x20 || c == 0x7f }) {
					t.Errorf("a line has control characters: %q", line)
				}
			}
			if strings.Contains(text, "c4n4ry") {
				t.Error("a body is logged")
			}
		})
	}
}

func TestAuditOfHooks(t *testing.T) {
	var log syncBuffer
	r := newRelay(t, setup{log: slog.NewJSONHandler(&log, nil), boundaries: broker.NewBoundaries(rejecting{}, true)})
	ann := r.agent("ann")
	r.agent("ben")
	ann.post("/messages", `{"to":"ben","id":"m1"}`).want(http.StatusUnprocessableEntity, nil)
	if text := log.String(); !strings.Contains(text, `"msg":"message refused by a hook","audit":{"id":"m1","from":"ann","to":"ben"}`) {
		t.Errorf("the log lacks who was refused:\n%s", text)
	}
}
