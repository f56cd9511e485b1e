package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Deliveries are verified by who takes them, before and beside the signatures of
// agents; what is wrong with a request is told as for any other.
func TestDeliveries(t *testing.T) {
	var got []string
	r := newRelay(t, setup{perAddress: 3, deliver: func(_ context.Context, name, timestamp, signature string, body []byte) (string, bool, error) {
		got = append(got, fmt.Sprint(name, " ", timestamp, " ", signature, " ", string(body)))
		switch signature {
		case "bad":
			return "", false, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonBadSignature, Message: "no"}
		case "again":
			return "connector:1", true, nil
		}
		return "connector:1", false, nil
	}})
	post := func(signature string) call {
		return call{
			method: http.MethodPost, target: "/connectors/chat/inbound", body: `{"event":{}}`, unsigned: true,
			header: []string{"X-Relay-Timestamp: 17", "x-relay-signature: " + signature},
		}
	}
	r.do(post("good")).wantBody(http.StatusCreated, `{"accepted":true,"id":"connector:1","duplicate":false}`)
	r.do(post("again")).wantBody(http.StatusOK, `{"accepted":true,"id":"connector:1","duplicate":true}`)
	if len(got) != 2 || got[0] != `chat 17 good {"event":{}}` {
		t.Errorf("delivered are %q", got)
	}
	elsewhere := post("good")
	elsewhere.host = "other.example"
	r.do(elsewhere).wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
	browser := post("good")
	browser.header = append(browser.header, "Origin: http://127.0.0.1")
	r.do(browser).wantError(http.StatusForbidden, agentrelay.CodeOriginRefused)
	for target, method := range map[string]string{
		"/connectors/chat": http.MethodPost, "/connectors/": http.MethodPost, "/connectors/a%2Fb/inbound": http.MethodPost, "/connectors//inbound": http.MethodPost,
	} {
		r.do(call{method: method, target: target, unsigned: true}).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
	}
	r.do(call{target: "/connectors/chat/inbound", unsigned: true}).wantError(http.StatusMethodNotAllowed, agentrelay.CodeMethodNotAllowed)
	if len(got) != 2 {
		t.Errorf("delivered are %q", got)
	}
	r.do(call{method: http.MethodPost, target: "/connectors/chat/inbound", unsigned: true}).
		wantReason(agentrelay.ReasonMissingHeaders)
	for range 2 {
		r.do(post("bad")).wantReason(agentrelay.ReasonBadSignature)
	}
	r.do(post("bad")).wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
	r.do(post("good")).want(http.StatusCreated, nil) // which is never affected
	large := post("good")
	large.length = maxBody + 1
	r.do(large).wantError(http.StatusRequestEntityTooLarge, agentrelay.CodeBodyTooLarge)
}

// Without connectors that post there is no such route.
func TestNoDeliveries(t *testing.T) {
	r := newRelay(t, setup{})
	target := call{method: http.MethodPost, target: "/connectors/chat/inbound"}
	unsigned := target
	unsigned.unsigned = true
	r.do(unsigned).wantError(http.StatusUnauthorized, agentrelay.CodeUnauthenticated)
	target.agent = "ann"
	r.do(target).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
}
