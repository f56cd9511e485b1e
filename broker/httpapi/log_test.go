package httpapi_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// What is private is in no log, at no level.
func TestLogsHoldNothingPrivate(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		t.Run(level.String(), func(t *testing.T) {
			var log logLines
			r := newRelay(t, setup{log: log.handler(level)})
			const canary = "c4n4ry"
			ann, ben := r.agent("ann"), r.agent("ben")
			ann.post("/messages", `{"to":"ben","id":"m","body":"`+canary+`","rootId":"`+canary+`"}`).want(http.StatusCreated, nil)
			for _, body := range []string{
				`{"to":"ben","id":"m","body":"other ` + canary + `"}`, `{"to":"nobody","body":"` + canary + `"}`, `{"to":"ben","kind":"` + canary + `"}`,
				`{"to":"ben","body":` + canary + `}`, canary, `"` + canary + `"`, "\xff" + canary,
			} {
				ann.post("/messages", body)
			}
			r.store.set(func(s *spy) { s.failEnqueue = errors.New("the cause") })
			ann.post("/messages", `{"to":"ben","body":"`+canary+`"}`).want(http.StatusServiceUnavailable, nil)
			r.store.set(func(s *spy) { s.failEnqueue, s.failProbe = nil, errors.New("the cause") })
			r.do(call{target: "/healthz", unsigned: true}).want(http.StatusServiceUnavailable, nil)
			ben.get("/messages?since="+canary).want(http.StatusOK, nil)
			m := ben.pullOne(``)
			ben.post("/v1/ack", fmt.Sprintf(`{"messageId":"m","leaseId":%q,"outcome":"retry","error":%q}`, *m.LeaseID, canary)).want(http.StatusOK, nil)
			ben.post("/messages/m/ack", `{"status":"error","error":"`+canary+`"}`).want(http.StatusCreated, nil)
			ann.get("/messages").want(http.StatusOK, nil)
			timestamp := fmt.Sprint(start.Unix())
			signature := agentrelay.Sign(secret, http.MethodGet, "/peers", timestamp, nil)
			for _, c := range []call{
				{agent: "ann", target: "/peers", signature: signature},
				{agent: "ann", target: "/peers?x", signature: signature},
				{agent: "bad name", target: "/peers", signature: signature},
				{agent: "ann", target: "/peers", timestamp: canary, signature: signature},
				{agent: "ann", target: "/", signature: signature, header: []string{"Authorization: " + canary, "Cookie: " + canary}},
				{agent: "ann", target: "/peers", signature: canary, host: "example"},
			} {
				r.do(c)
			}
			keys := []broker.Key{r.addKeyed("zoe"), r.addKeyed("ann")}
			for _, give := range []func() (broker.Key, error){
				func() (broker.Key, error) { return r.broker.RotateKey(t.Context(), "zoe", time.Hour) },
				func() (broker.Key, error) { return r.broker.AddKey(t.Context(), "zoe", r.clock.Now().Add(time.Hour)) },
			} {
				k, err := give()
				keys = append(keys, r.mustKey(k, err))
			}
			for _, k := range keys {
				r.peers(k.Agent, k.Secret).want(http.StatusOK, nil)
				r.must(r.broker.RevokeKey(t.Context(), k.Agent, k.ID))
				r.peers(k.Agent, k.Secret)
				slog.New(r.setup.log).Error("a key", "key", k, "keys", keys)
			}
			r.must(r.broker.RemoveAgent(t.Context(), "zoe"))
			for range 6 {
				r.do(call{agent: "eve", target: "/peers", signature: canary})
			}
			r.dial().send([]byte(canary + "\r\n\r\n"))
			r.stop()

			text := log.String()
			private := []string{canary, secret, signature, *m.LeaseID}
			for _, k := range keys {
				private = append(private, k.Secret)
			}
			for _, private := range private {
				if i := strings.Index(text, private); i >= 0 {
					t.Errorf("the log holds %q: …%s", private, text[max(0, i-200):i+len(private)])
				}
			}
			if strings.Contains(text, `"cause"`) || !strings.Contains(text, "the cause") {
				t.Error("the log lacks the cause of a fault")
			}
			if level <= slog.LevelInfo && !strings.Contains(text, `"request refused"`) {
				t.Error("the log lacks what was refused")
			}
			if level <= slog.LevelWarn && !strings.Contains(text, `"agent locked"`) {
				t.Error("the log lacks who was locked")
			}
			if level <= slog.LevelDebug && !strings.Contains(text, `"id":"m"`) {
				t.Error("the log lacks the message's id")
			}
		})
	}
}

// A refused request is logged with the name of its agent, if it is one.
func TestLogNamesRefusedAgents(t *testing.T) {
	var log logLines
	r := newRelay(t, setup{log: log.handler(slog.LevelDebug)})
	r.wantBad("ann", 5)
	r.do(good("ann")).wantLocked("300")
	r.do(call{agent: "ben", target: "/peers", timestamp: "soon"}).wantReason(agentrelay.ReasonBadTimestamp)
	r.do(call{agent: "no name", target: "/peers"}).wantReason(agentrelay.ReasonBadAgentName)
	r.do(call{agent: "no name", target: "/"}).want(http.StatusOK, nil)
	r.stop()
	text := log.String()
	for _, want := range []string{
		`"msg":"request refused","audit":{"agent":"ann","address":"127.0.0.1","code":"unauthenticated","reason":"bad_signature"`,
		`"msg":"request refused","audit":{"agent":"ann","address":"127.0.0.1","code":"locked"`,
		`"msg":"request refused","audit":{"agent":"ben","address":"127.0.0.1","code":"unauthenticated","reason":"bad_timestamp"`,
		`"msg":"request refused","audit":{"agent":"","address":"127.0.0.1","code":"unauthenticated","reason":"bad_agent_name"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "no name") {
		t.Errorf("the log holds a name that is none:\n%s", text)
	}
}
