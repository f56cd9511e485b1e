//go:build !windows

package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

// Hello and what follows may be sent at once.
func TestControlPipelined(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.connect()
	c.say(helloLine + "\n" + `{"id":2,"method":"list_agents"}`)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	want := helloAnswer + "\n" + `{"kind":"reply","id":2,"result":{"type":"agents","data":[]}}` + "\n"
	if got := c.rest(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// Without a good hello nothing is done, and the connection stays open.
func TestControlHello(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.connect()
	for _, q := range []struct{ line, want string }{
		{`{"id":1,"method":"stats"}`, `{"kind":"reply","id":1,"error":"say hello first: {\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}","code":"bad_request"}`},
		{`{"id":2,"method":"subscribe"}`, `{"kind":"reply","id":2,"error":"say hello first: {\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}","code":"bad_request"}`},
		{`{"id":3,"method":"hello","params":{"version":2}}`, `{"kind":"reply","id":3,"error":"the app speaks protocol 2, this daemon 1; update the older one","code":"bad_request"}`},
		{`{"id":4,"method":"hello","params":{"version":0}}`, `{"kind":"reply","id":4,"error":"the app speaks protocol 0, this daemon 1; update the older one","code":"bad_request"}`},
		{`{"id":5,"method":"hello"}`, `{"kind":"reply","id":5,"error":"\"version\" is missing; this daemon speaks 1","code":"bad_request"}`},
		{`{"id":6,"method":"hello","params":{"version":"1"}}`, `{"kind":"reply","id":6,"error":"\"version\" must be a whole number from 0 to 9007199254740992","code":"bad_request"}`},
		{`{"id":7,"method":"send","params":{"from":"a","to":"b","body":1}}`, `{"kind":"reply","id":7,"error":"say hello first: {\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}","code":"bad_request"}`},
		{helloLine, helloAnswer},
		{`{"id":8,"method":"list_agents"}`, `{"kind":"reply","id":8,"result":{"type":"agents","data":[]}}`},
		{`{"id":9,"method":"hello","params":{"version":2}}`, `{"kind":"reply","id":9,"error":"the app speaks protocol 2, this daemon 1; update the older one","code":"bad_request"}`},
		{`{"id":10,"method":"list_agents"}`, `{"kind":"reply","id":10,"result":{"type":"agents","data":[]}}`},
	} {
		if got := c.ask(q.line); got != q.want {
			t.Errorf("%s\ngot  %s\nwant %s", q.line, got, q.want)
		}
	}
	if diff := cmp.Diff([]string{"AgentInfos", "AgentInfos"}, s.broker.asked()); diff != "" {
		t.Errorf("the broker was asked (-want +got):\n%s", diff)
	}
}

func TestControlForeignPeer(t *testing.T) {
	control := NewControl(ControlOptions{Broker: &recorder{}})
	f := newFixture(t, Options{Serve: control.Serve, allow: func(uint32) bool { return false }})
	if got := readAll(t, f.dial()); got != "" {
		t.Errorf("a foreign peer was told %q", got)
	}
}

// Each method asks the broker for what its params say, and answers what the
// broker says.
func TestControlMethods(t *testing.T) {
	s := newControlSocket(t, func(_ context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
		if string(payload) == `{"n":1e400}` {
			return hook.Failed(hook.Failure{Script: "a.sh", Code: 7})
		}
		return hook.Result{OK: payload == nil && kind == hook.CostAlert}
	})
	at := time.Date(2026, 11, 30, 4, 13, 0, 272e6, time.UTC)
	s.broker.agents = []broker.AgentInfo{
		{Agent: "alpha"},
		{
			Agent: "beta", Description: "builds <it>", AllowedTargets: []string{}, MaxQueued: 7, Registered: true, Online: true, LastSeen: at,
			Queued: 3, Leased: 2, LockedUntil: at, Keys: []broker.KeyInfo{{ID: "k1", Created: at}, {ID: "k2", Created: at, NotAfter: at, LastUsed: at}},
		},
	}
	s.broker.key = broker.Key{Agent: "beta", ID: "k3", Secret: "s3cret"}
	s.broker.messages = []agentrelay.Message{{
		ID: "m/1", From: "alpha", To: "beta", TS: at, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage,
		Status: agentrelay.StatusDone, Body: json.RawMessage("{\r\n\t\"n\": 1e400}"), DeliveredAt: at,
	}}
	const (
		bare     = `"description":null,"allowed_targets":null,"max_queued":null,"registered":false,"online":false,"last_seen":null,"queued":0,"leased":0,"keys":[],"locked_until":null}`
		alpha    = `{"agent":"alpha",` + bare
		beta     = `{"agent":"beta","description":"builds <it>","allowed_targets":[],"max_queued":7,"registered":true,"online":true,"last_seen":"2026-11-30T04:13:00.272Z","queued":3,"leased":2,"keys":[{"key_id":"k1","created":"2026-11-30T04:13:00.272Z","not_after":null,"last_used":null},{"key_id":"k2","created":"2026-11-30T04:13:00.272Z","not_after":"2026-11-30T04:13:00.272Z","last_used":"2026-11-30T04:13:00.272Z"}],"locked_until":"2026-11-30T04:13:00.272Z"}`
		envelope = `{"id":"m/1","from":"alpha","to":"beta","ts":"2026-11-30T04:13:00.272Z","type":"message","body":%s,"replyTo":null,"ack":false,"kind":"message","rootId":null,"parentId":null,"status":"done","attempts":0,"leaseUntil":null,"leaseId":null%s}`
		listed   = "result\":{\"type\":\"messages\",\"data\":["
	)
	whole := fmt.Sprintf(envelope, "{  \t\"n\": 1e400}", "")
	ok := `"result":{"type":"ok"}}`
	asked := `Send {"id":%q,"from":"alpha","to":"beta","ts":"0001-01-01T00:00:00.000Z","type":"message","body":%s,"replyTo":%s,"ack":%t,"kind":%q,"rootId":null,"parentId":%s,"status":"queued","attempts":0,"leaseUntil":null,"leaseId":null}`
	c := s.greet()
	for i, q := range []struct{ method, params, want, asked string }{
		{"list_agents", ``, `"result":{"type":"agents","data":[` + alpha + `,` + beta + `]}}`, "AgentInfos"},
		{"list_agents", `null`, `"result":{"type":"agents","data":[` + alpha + `,` + beta + `]}}`, "AgentInfos"},
		{"get_agent", `{"agent":"beta","x":1}`, `"result":{"type":"agent","data":` + beta + `}}`, "AgentInfo beta"},
		{"get_agent", `{"agent":"gamma"}`, `"error":"no such agent","code":"no_such_agent","suggestions":["alpha"]}`, "AgentInfo gamma"},
		{"add_agent", `{"agent":"beta"}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret"}}}`, "AddAgent beta same same same"},
		{"add_agent", `{"agent":"beta","description":"x","allowed_targets":["a"],"max_queued":5}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret"}}}`, `AddAgent beta "x" ["a"] 5`},
		{"update_agent", `{"agent":"beta","allowed_targets":null,"max_queued":9007199254740992}`, `"result":{"type":"agent","data":{"agent":"beta",` + bare + `}}`, `UpdateAgent beta same none 9007199254740992`},
		{"remove_agent", `{"agent":"beta"}`, ok, "RemoveAgent beta"},
		{"unlock_agent", `{"agent":"beta"}`, ok, "UnlockAgent beta"},
		{"add_key", `{"agent":"beta"}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret","not_after":null}}}`, "AddKey beta 0001-01-01 00:00:00 +0000 UTC"},
		{"add_key", `{"agent":"beta","not_after":"2027-01-31T13:00:00+01:00"}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret","not_after":"2027-01-31T12:00:00.000Z"}}}`, "AddKey beta 2027-01-31 12:00:00 +0000 UTC"},
		{"rotate_key", `{"agent":"beta"}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret","not_after":null}}}`, "RotateKey beta 24h0m0s"},
		{"rotate_key", `{"agent":"beta","overlap_seconds":0}`, `"result":{"type":"key","data":{"agent":"beta","key_id":"k3","secret":"s3cret","not_after":null}}}`, "RotateKey beta 0s"},
		{"revoke_key", `{"agent":"beta","key_id":"k1"}`, ok, "RevokeKey beta k1"},
		{"send", `{"from":"alpha","to":"beta","body":{"n": 1e400, "n":"\u00e9"},"id":"m/2"}`, `"result":{"type":"sent","data":{"id":"m/2","duplicate":false}}}`, fmt.Sprintf(asked, "m/2", `{"n": 1e400, "n":"\u00e9"}`, "null", false, "message", "null")},
		{"send", `{"from":"alpha","to":"beta","body":null,"id":"again","kind":"reply","reply_to":"m/1","ack":true}`, `"result":{"type":"sent","data":{"id":"again","duplicate":true}}}`, fmt.Sprintf(asked, "again", `null`, `"m/1"`, true, "reply", `"m/1"`)},
		{"send", `{"from":"alpha","to":"beta","body":[],"kind":"request","reply_to":"m/1","id":null}`, `"result":{"type":"sent","data":{"id":"","duplicate":false}}}`, fmt.Sprintf(asked, "", `[]`, `"m/1"`, false, "request", `null`)},
		{"recent", `{"agent":"beta"}`, `"` + listed + whole + `]}}`, "Query {Agent:beta ID: Kind: Status: From: To: Limit:50 MaxBytes:4194304}"},
		{"recent", `{"agent":"beta","limit":3,"kind":"x","max_bytes":7}`, `"` + listed + whole + `]}}`, "Query {Agent:beta ID: Kind: Status: From: To: Limit:3 MaxBytes:7}"},
		{"query", `{"agent":"beta","limit":999,"kind":"reply","status":"failed","from":"a","to":"b"}`, `"` + listed + whole + `]}}`, "Query {Agent:beta ID: Kind:reply Status:failed From:a To:b Limit:200 MaxBytes:4194304}"},
		{"status", `{"agent":"beta","ids":["x","m/1"]}`, `"` + listed + `{"id":"x","status":"not_found","attempts":0},` + fmt.Sprintf(envelope, "null", `,"deliveredAt":"2026-11-30T04:13:00.272Z"`) + `]}}`, `Messages beta ["x" "m/1"]`},
		{"requeue", `{"message_id":"m/1"}`, ok, "Requeue m/1"},
		{"cancel", `{"message_id":"m/1"}`, ok, "Cancel m/1"},
		{"fire_hook", `{"hook":"cost-alert"}`, `"result":{"type":"hook","data":{"ok":true,"errors":[]}}}`, ""},
		{"fire_hook", `{"hook":"pre-message","payload":{"n":1e400}}`, `"result":{"type":"hook","data":{"ok":false,"errors":[{"script":"a.sh","code":7}]}}}`, ""},
		{"reload", ``, ok, "Reload"},
		{"conquer", ``, `"error":"there is no method \"conquer\"","code":"not_found"}`, ""},
		{"Stats", ``, `"error":"there is no method \"Stats\"","code":"not_found"}`, ""},
	} {
		line := fmt.Sprintf(`{"id":%d,"method":%q}`, i, q.method)
		if q.params != "" {
			line = fmt.Sprintf(`{"id":%d,"method":%q,"params":%s}`, i, q.method, q.params)
		}
		if got, want := c.ask(line), fmt.Sprintf(`{"kind":"reply","id":%d,%s`, i, q.want); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
		if got := strings.Join(s.broker.asked(), "; "); got != q.asked {
			t.Errorf("%s\nasked %s\nwant  %s", line, got, q.asked)
		}
	}
}

func TestControlStats(t *testing.T) {
	s := newControlSocket(t, nil)
	at := time.Date(2026, 11, 30, 4, 13, 0, 272e6, time.UTC)
	s.broker.held = store.Stats{Queued: 3, Leased: 2, OldestQueued: at, DatabaseBytes: 4096, LogBytes: 512}
	c := s.greet()
	c.ask(`{"id":2,"method":"subscribe"}`)
	c.say("nonsense")
	reply := c.ask(`{"id":3,"method":"stats"}`)
	var got struct {
		Result struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(reply), &got); err != nil {
		t.Fatal(err)
	}
	started, _ := got.Result.Data["started"].(string)
	uptime, _ := got.Result.Data["uptime_seconds"].(float64)
	if at, err := time.Parse(time.RFC3339, started); err != nil || time.Since(at) < 0 || uptime < 0 {
		t.Errorf("started %q, uptime %v", started, uptime)
	}
	delete(got.Result.Data, "started")
	delete(got.Result.Data, "uptime_seconds")
	want := map[string]any{
		"daemon_version": "1.2.3", "agents": 2., "agents_online": 1., "queued": 3., "leased": 2.,
		"oldest_queued": "2026-11-30T04:13:00.272Z", "database_bytes": 4096., "log_bytes": 512.,
		"control_clients": 1., "control_subscribers": 1., "control_unreadable_lines": 1., "control_lost_events": 0.,
	}
	if diff := cmp.Diff(want, got.Result.Data); diff != "" || got.Result.Type != "stats" {
		t.Errorf("%s (-want +got):\n%s", got.Result.Type, diff)
	}
}

// What a reload cannot change is said.
func TestControlReload(t *testing.T) {
	s := newControlSocket(t, nil)
	s.broker.restart = []string{"listen", "secret"}
	if got, want := s.greet().ask(`{"id":2,"method":"reload"}`), `{"kind":"reply","id":2,"result":{"type":"ok","data":{"needs_restart":["listen","secret"]}}}`; got != want {
		t.Errorf("got %s", got)
	}
}

// A bad value is an error and changes nothing.
func TestControlBadValues(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.greet()
	const name = `must be an agent name: 1 to 64 of A-Z a-z 0-9 _ . -`
	for i, q := range []struct{ method, params, want string }{
		{"get_agent", `{}`, `"agent" is missing; name the agent`},
		{"get_agent", `{"agent":null}`, `"agent" is missing; name the agent`},
		{"get_agent", `{"Agent":"beta"}`, `"agent" is missing; name the agent`},
		{"get_agent", `{"agent":7}`, `"agent" must be a string`},
		{"get_agent", `{"agent":"a b"}`, `"agent" ` + name},
		{"remove_agent", `{"agent":""}`, `"agent" ` + name},
		{"unlock_agent", `{}`, `"agent" is missing; name the agent`},
		{"add_agent", `{}`, `"agent" is missing; name the agent`},
		{"add_agent", `{"agent":"b","description":7}`, `"description" must be a string`},
		{"update_agent", `{}`, `"agent" is missing; name the agent`},
		{"update_agent", `{"agent":"b","description":"ok","max_queued":0}`, `"max_queued" must be a whole number from 1 to 9007199254740992`},
		{"update_agent", `{"agent":"b","max_queued":1.5}`, `"max_queued" must be a whole number from 1 to 9007199254740992`},
		{"update_agent", `{"agent":"b","max_queued":"5"}`, `"max_queued" must be a whole number from 1 to 9007199254740992`},
		{"update_agent", `{"agent":"b","max_queued":5,"allowed_targets":"a"}`, `"allowed_targets" must be a list of texts`},
		{"update_agent", `{"agent":"b","allowed_targets":[null]}`, `"allowed_targets" must be a list of texts`},
		{"update_agent", `{"agent":"b","allowed_targets":["a b"]}`, `"allowed_targets" must hold agent names: 1 to 64 of A-Z a-z 0-9 _ . -`},
		{"update_agent", `{"agent":"b","allowed_targets":["a","a"]}`, `"allowed_targets" names a twice`},
		{"add_key", `{}`, `"agent" is missing; name the agent`},
		{"add_key", `{"agent":"b","not_after":"tomorrow"}`, `"not_after" must be a time such as 2027-01-31T12:00:00Z`},
		{"add_key", `{"agent":"b","not_after":7}`, `"not_after" must be a string`},
		{"rotate_key", `{}`, `"agent" is missing; name the agent`},
		{"rotate_key", `{"agent":"b","overlap_seconds":-1}`, `"overlap_seconds" must be a whole number from 0 to 31622400`},
		{"revoke_key", `{"agent":"b"}`, `"key_id" is missing`},
		{"revoke_key", `{"key_id":"b"}`, `"agent" is missing; name the agent`},
		{"send", `{"to":"b","body":1}`, `"from" is missing; name the agent`},
		{"send", `{"from":"a","to":"b"}`, `"body" is missing; it may be any JSON value`},
		{"send", `{"from":"a","body":1}`, `"to" is missing; name the recipient`},
		{"send", `{"from":"a","to":"a","body":1}`, `"to" is the sender itself; an agent cannot send to itself`},
		{"send", `{"from":"a","to":"b","body":1,"kind":"x"}`, `"kind" must be "message", "request" or "reply"`},
		{"send", `{"from":"a","to":"b","body":1,"ack":1}`, `"ack" must be true or false`},
		{"send", `{"from":"a","to":"b","body":1,"reply_to":7}`, `"reply_to" must be a string`},
		{"recent", `{}`, `"agent" is missing; name the agent`},
		{"recent", `{"agent":"b","limit":0}`, `"limit" must be a whole number from 1 to 9223372036854775807`},
		{"recent", `{"agent":"b","max_bytes":"7"}`, `"max_bytes" must be a whole number from 1 to 9223372036854775807`},
		{"query", `{"agent":"b","kind":"x"}`, `"kind" must be "message", "request" or "reply"`},
		{"query", `{"agent":"b","status":"x"}`, `"status" must be "queued", "leased", "done", "failed" or "expired"`},
		{"query", `{"agent":"b","from":1}`, `"from" must be a string`},
		{"status", `{"ids":["a"]}`, `"agent" is missing; name the agent`},
		{"status", `{"agent":"b"}`, `"ids" must be a list of 1 to 200 message ids`},
		{"status", `{"agent":"b","ids":[7]}`, `"ids" must be a list of texts`},
		{"requeue", `{}`, `"message_id" is missing`},
		{"cancel", `{"message_id":"a b"}`, `"message_id" must be a message id`},
		{"fire_hook", `{}`, `"hook" is missing`},
		{"fire_hook", `{"hook":"x"}`, `unknown hook kind "x"; want one of: pre-message, post-message, cost-alert, update-applied`},
		{"fire_hook", `{"hook":"cost-alert","payload":[]}`, `"payload" must be an object, such as {}`},
		{"subscribe", `{"events":"x"}`, `"events" must be a list of texts`},
		{"unsubscribe", `{"events":["lagged"]}`, `there is no event "lagged"; there are ` + strings.Join(EventNames(), ", ")},
	} {
		line := fmt.Sprintf(`{"id":%d,"method":%q,"params":%s}`, i, q.method, q.params)
		want := string(errorReply(fmt.Sprint(i), invalid("%s", q.want)))
		if got := c.ask(line); got+"\n" != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
	if calls := s.broker.asked(); calls != nil {
		t.Errorf("the broker was asked %q", calls)
	}
}

// What the broker refuses is told, and what is only for the log is not.
func TestControlFailures(t *testing.T) {
	s := newControlSocket(t, nil)
	c := s.greet()
	requests := []string{
		`{"id":2,"method":"list_agents"}`, `{"id":2,"method":"add_agent","params":{"agent":"b"}}`,
		`{"id":2,"method":"update_agent","params":{"agent":"b"}}`, `{"id":2,"method":"remove_agent","params":{"agent":"b"}}`,
		`{"id":2,"method":"add_key","params":{"agent":"b"}}`, `{"id":2,"method":"rotate_key","params":{"agent":"b"}}`,
		`{"id":2,"method":"revoke_key","params":{"agent":"b","key_id":"k"}}`, `{"id":2,"method":"send","params":{"from":"a","to":"b","body":1}}`,
		`{"id":2,"method":"recent","params":{"agent":"b"}}`, `{"id":2,"method":"status","params":{"agent":"b","ids":["a"]}}`,
		`{"id":2,"method":"requeue","params":{"message_id":"b"}}`, `{"id":2,"method":"stats"}`, `{"id":2,"method":"reload"}`,
	}
	for _, request := range requests {
		s.broker.fail(&agentrelay.Error{Code: agentrelay.CodeForbidden, Message: "not this one"})
		if got, want := c.ask(request), `{"kind":"reply","id":2,"error":"not this one","code":"forbidden"}`; got != want {
			t.Errorf("%s\ngot  %s\nwant %s", request, got, want)
		}
		s.broker.fail(errors.New("disk on fire"))
		if got, want := c.ask(request), `{"kind":"reply","id":2,"error":"the broker could not do this just now; try again","code":"busy"}`; got != want {
			t.Errorf("%s\ngot  %s\nwant %s", request, got, want)
		}
	}
	if got := strings.Count(s.log.String(), "disk on fire"); got != len(requests) {
		t.Errorf("logged %d causes, want %d:\n%s", got, len(requests), s.log)
	}
	s.broker.fail(&agentrelay.Error{Code: agentrelay.CodeBusy})
	if got, want := c.ask(requests[0]), `{"kind":"reply","id":2,"error":"busy","code":"busy"}`; got != want {
		t.Errorf("without a text: %s", got)
	}
}

// A slow hook holds up nothing else, and is answered when it is done.
func TestControlOutOfOrder(t *testing.T) {
	slow, done := make(chan bool), make(chan bool)
	s := newControlSocket(t, func(context.Context, hook.Kind, json.RawMessage) hook.Result {
		slow <- true
		<-done
		return hook.Result{OK: true}
	})
	c := s.greet()
	c.say(`{"id":2,"method":"fire_hook","params":{"hook":"cost-alert"}}`, `{"id":3.5e1,"method":"requeue","params":{"message_id":"m"}}`)
	<-slow
	if got, want := c.hear(), `{"kind":"reply","id":3.5e1,"result":{"type":"ok"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	close(done)
	if got, want := c.hear(), `{"kind":"reply","id":2,"result":{"type":"hook","data":{"ok":true,"errors":[]}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Sends keep their order, and hold up nothing else.
func TestControlSendOrder(t *testing.T) {
	s := newControlSocket(t, nil)
	hold := make(chan bool)
	s.broker.sending = func(m agentrelay.Message) {
		if m.ID == "0" {
			<-hold
		}
	}
	c := s.greet()
	const n = 20
	var want []string
	for i := range n {
		c.say(fmt.Sprintf(`{"id":%d,"method":"send","params":{"from":"a","to":"b","id":"%d","body":1}}`, i, i))
		want = append(want, fmt.Sprintf(`{"kind":"reply","id":%d,"result":{"type":"sent","data":{"id":"%d","duplicate":false}}}`, i, i))
	}
	if got := c.ask(`{"id":99,"method":"list_agents"}`); !strings.HasPrefix(got, `{"kind":"reply","id":99,"result"`) {
		t.Errorf("got %s", got)
	}
	close(hold)
	var got []string
	for range n {
		got = append(got, c.hear())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Only so many requests of a client are under way; others wait, and no other
// client does.
func TestControlInFlight(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	done := make(chan bool)
	s := newControlSocket(t, func(context.Context, hook.Kind, json.RawMessage) hook.Result {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-done
		mu.Lock()
		running--
		mu.Unlock()
		return hook.Result{OK: true}
	})
	c := s.greet()
	const n = 3 * maxPending
	for i := range n {
		c.say(fmt.Sprintf(`{"id":%d,"method":"fire_hook","params":{"hook":"cost-alert"}}`, i))
	}
	waitFor(t, "as many run as may", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return running == maxPending
	})
	s.greet().ask(`{"id":2,"method":"stats"}`)
	close(done)
	seen := map[string]bool{}
	for range n {
		seen[c.hear()] = true
	}
	if len(seen) != n || most > maxPending {
		t.Errorf("%d different answers to %d requests, at most %d at once", len(seen), n, most)
	}
}
