package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// asking are routes that accept a request q1, after which the polls answer.
func asking(duplicate bool, polls ...func(called) (*http.Response, error)) *routed {
	return &routed{routes: map[string]func(called) (*http.Response, error){
		"POST /v1/recent": always(200, `{"messages":[{"id":"old","from":"alpha","to":"beta","body":{}}],"count":1}`),
		"POST /messages":  always(201, fmt.Sprintf(`{"accepted":true,"id":"q1","duplicate":%v,"recipient":{"online":true,"lastSeen":1}}`, duplicate)),
		"GET /messages":   inTurn(polls...),
	}}
}

// inbox is a page of messages given as JSON.
func inbox(messages ...string) func(called) (*http.Response, error) {
	return always(200, `{"messages":[`+strings.Join(messages, ",")+`],"cursor":"c"}`)
}

const (
	answered     = `{"id":"r1","from":"alpha","to":"beta","type":"message","kind":"reply","parentId":"q1","body":{"n":1}}`
	asks         = `{"id":"other","from":"alpha","to":"beta","type":"message","parentId":"q0","body":{}}`
	impostor     = `{"id":"r0","from":"gamma","to":"beta","type":"message","kind":"reply","parentId":"q1","body":{}}`
	done         = `{"id":"k1","from":"alpha","to":"beta","type":"ack","replyTo":"q1","body":{"status":"ok"}}`
	otherRefused = `{"id":"k0","from":"alpha","to":"beta","type":"ack","replyTo":"q0","body":{"status":"error","error":"x"}}`
	oddReceipt   = `{"id":"k3","from":"alpha","to":"beta","type":"ack","replyTo":"q1","body":[]}`
	refused      = `{"id":"k2","from":"alpha","to":"beta","type":"ack","replyTo":"q1","body":{"status":"error","error":"undelivered: nobody came"}}`
)

func TestRequestFindsItsReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := asking(false, inbox(asks, impostor, done, otherRefused, oddReceipt), usual, away, inbox(answered, refused))
		reply, err := r.begin(t).Request(t.Context(), Outgoing{ID: "q1", To: "alpha", Kind: agentrelay.KindMessage})
		if err != nil || reply.ID != "r1" || string(reply.Body) != `{"n":1}` {
			t.Fatalf("%+v, %v", reply, err)
		}
		if sent := r.bodies("POST /messages"); len(sent) != 1 || !strings.Contains(sent[0], `"kind":"request"`) {
			t.Errorf("sent %v", sent)
		}
		// It waits at once, and begins after what was there.
		if poll := r.to("GET /messages")[0]; poll.query != "since=old&wait=30" {
			t.Errorf("polls with %s", poll.query)
		}
		var acked []string
		for _, c := range r.calls {
			if strings.HasSuffix(c.route, "/ack") {
				acked = append(acked, c.route+" "+c.body)
			}
		}
		if !slices.Equal(acked, []string{`POST /messages/r1/ack {"status":"ok"}`}) {
			t.Errorf("acknowledged %v", acked)
		}
	})
}

func TestRequestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply, err := asking(false, inbox(done, refused, answered)).begin(t).Request(t.Context(), Outgoing{ID: "q1", To: "alpha"})
		if !errors.Is(err, ErrUndelivered) || !strings.Contains(err.Error(), "undelivered: nobody came") || reply.ID != "" {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

// The reply to a request that was sent before may have come before.
func TestRequestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := asking(true, inbox(answered))
		if reply, err := r.begin(t).Request(t.Context(), Outgoing{ID: "q1", To: "alpha"}); err != nil || reply.ID != "r1" {
			t.Errorf("%+v, %v", reply, err)
		}
		if poll := r.to("GET /messages")[0]; poll.query != "wait=30" {
			t.Errorf("polls with %s", poll.query)
		}
	})
}

func TestRequestOfAnEmptyInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := asking(false, inbox(answered))
		r.routes["POST /v1/recent"] = always(200, `{"messages":[],"count":0}`)
		if reply, err := r.begin(t).Request(t.Context(), Outgoing{ID: "q1", To: "alpha"}); err != nil || reply.ID != "r1" {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

func TestRequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := asking(false)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		c := r.begin(t)
		if _, err := c.Request(ctx, Outgoing{ID: "q1", To: "alpha"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 90*time.Second {
			t.Errorf("%v after %v", err, time.Since(r.began))
		}
	})
}

// Each step may fail; what came with the last is not thrown away.
func TestRequestFails(t *testing.T) {
	forbidden := always(403, `{"error":{"code":"forbidden","message":"x"}}`)
	for route, id := range map[string]string{
		"POST /register": "", "POST /v1/recent": "", "POST /messages": "", "GET /messages": "", "POST /messages/r1/ack": "r1",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := asking(false, inbox(answered))
			r.routes[route] = forbidden
			reply, err := r.begin(t).Request(t.Context(), Outgoing{ID: "q1", To: "alpha"})
			if !errors.Is(err, agentrelay.ErrForbidden) || reply.ID != id {
				t.Errorf("%s: %q, %v", route, reply.ID, err)
			}
		})
	}
}

func TestReply(t *testing.T) {
	for _, c := range []struct{ root, want string }{{"", "q1"}, {"first", "first"}} {
		got := Reply(agentrelay.Message{ID: "q1", From: "alpha", To: "beta", RootID: c.root, ParentID: "q0"}, json.RawMessage(`1`))
		if got.To != "alpha" || got.Kind != agentrelay.KindReply || got.ParentID != "q1" || got.ReplyTo != "q1" || got.RootID != c.want || string(got.Body) != "1" {
			t.Errorf("%+v", got)
		}
	}
}
