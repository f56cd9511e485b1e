package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestTargetIsSignedAsSent(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	for _, target := range []string{
		"/messages?", "/messages?since=a%2Bb", "/messages?since=a+b", "/messages?since=%2f", "/messages?since=%2F",
		"/messages?limit=1&limit=2", "/messages?since=a&since=b", "/messages?since=", "/messages?%zz", "/messages?since=%",
		"/messages?a;b", "/messages?since=é", "//messages", "/messages/a%2fb/ack", "/%6dessages", "http://" + r.addr + "/messages?x=%2B",
	} {
		a := ben.get(target)
		if a.status == http.StatusUnauthorized {
			t.Errorf("%s signed as it stands is refused: %s", target, a.body)
		}
	}
	for _, pair := range [][2]string{
		{"/messages?since=a%2Bb", "/messages?since=a+b"},
		{"/messages?since=%2f", "/messages?since=%2F"},
		{"/messages?since=%2f", "/messages?since=/"},
		{"/messages?", "/messages"},
		{"/messages?a=1&b=2", "/messages?b=2&a=1"},
		{"/messages?a=1", "/messages"},
		{"/peers", "/%70eers"},
	} {
		sent := call{agent: "ben", target: pair[0], timestamp: "1773480413"}
		sent.signature = agentrelay.Sign(secret, http.MethodGet, pair[1], sent.timestamp, nil)
		r.do(sent).wantReason(agentrelay.ReasonBadSignature)
		ben.get("/peers").want(http.StatusOK, nil) // so that it is not locked
	}
}

func TestSignatureCoversEachPart(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ben")
	timestamp := "1773480413"
	good := agentrelay.Sign(secret, http.MethodPost, "/v1/recent", timestamp, []byte(`{}`))
	sent := call{agent: "ben", method: http.MethodPost, target: "/v1/recent", body: `{}`, timestamp: timestamp, signature: good}
	r.do(sent).want(http.StatusOK, nil)
	for name, change := range map[string]func(*call){
		"method":          func(c *call) { c.method = http.MethodPut },
		"target":          func(c *call) { c.target = "/v1/pull" },
		"body":            func(c *call) { c.body = `{ }` },
		"timestamp":       func(c *call) { c.timestamp = "1773480414" },
		"other secret":    func(c *call) { c.signature, c.secret = "", "another secret that is long enough" },
		"upper-case hex":  func(c *call) { c.signature = strings.ToUpper(good) },
		"cut":             func(c *call) { c.signature = good[:63] },
		"longer":          func(c *call) { c.signature = good + "0" },
		"algorithm named": func(c *call) { c.signature = "sha256=" + good },
	} {
		changed := sent
		change(&changed)
		if f := r.do(changed).wantReason(agentrelay.ReasonBadSignature); f.ServerTime != nil {
			t.Errorf("%s: an answer about a bad signature tells the clock", name)
		}
		r.do(sent).want(http.StatusOK, nil) // so that it is not locked
	}
}

func TestHeaderNamesInAnyCase(t *testing.T) {
	r := newRelay(t, setup{})
	timestamp := "1773480413"
	signature := agentrelay.Sign(secret, http.MethodGet, "/peers", timestamp, nil)
	for _, names := range [][3]string{
		{"x-relay-agent", "x-relay-timestamp", "x-relay-signature"},
		{"X-RELAY-AGENT", "X-RELAY-TIMESTAMP", "X-RELAY-SIGNATURE"},
		{"X-Relay-agent", "x-relay-Timestamp", "x-Relay-SIGNATURE"},
	} {
		r.do(call{target: "/peers", unsigned: true, header: []string{
			names[0] + ": ben", names[1] + ":" + timestamp, names[2] + ":\t" + signature,
		}}).want(http.StatusOK, nil)
	}
}

// Old clients write the same JSON in different ways; only the bytes count.
func TestJSONAsOldClientsWriteIt(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.agent("ben")
	for _, body := range []string{
		`{"id": "spaced", "to": "ben", "body": {"a": 1, "b": [1, 2]}}`,
		`{"id":"compact","to":"ben","body":{"a":1,"b":[1,2]}}`,
	} {
		ann.post("/messages", body).want(http.StatusCreated, nil)
		if a := r.do(call{
			agent: "ann", method: http.MethodPost, target: "/messages", body: body, timestamp: "1773480413",
			signature: agentrelay.Sign(secret, http.MethodPost, "/messages", "1773480413", []byte(strings.ReplaceAll(body, " ", ""))),
		}); strings.Contains(body, " ") {
			a.wantReason(agentrelay.ReasonBadSignature)
		}
	}
}

func TestBadTimestamps(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ben")
	for _, text := range []string{
		"0x69b527dd", "1773480413e0", "+1773480413", "-1773480413", "1773480413.", ".5", "1773480413.1234567890",
		"1773480413,5", "1773480413.5.5", "now", "17734804131234", "１７７３４８０４１３",
	} {
		r.do(call{agent: "ben", target: "/peers", timestamp: text}).wantReason(agentrelay.ReasonBadTimestamp)
	}
	// None of them counted toward the lock.
	r.do(call{agent: "ben", target: "/peers"}).want(http.StatusOK, nil)
}

func TestHeadersMissingOrBad(t *testing.T) {
	r := newRelay(t, setup{})
	signed := []string{"X-Relay-Agent: ben", "X-Relay-Timestamp: 1773480413", "X-Relay-Signature: 00"}
	for i := range signed {
		lines := append(append([]string{}, signed[:i]...), signed[i+1:]...)
		r.do(call{target: "/peers", unsigned: true, header: lines}).wantReason(agentrelay.ReasonMissingHeaders)
		name, _, _ := strings.Cut(signed[i], ":")
		r.do(call{target: "/peers", unsigned: true, header: append(lines, name+": ")}).wantReason(agentrelay.ReasonMissingHeaders)
	}
	for _, name := range []string{"a b", "a/b", "ä", strings.Repeat("a", 65), "a,b", "..\x80"} {
		r.do(call{agent: name, target: "/peers"}).wantReason(agentrelay.ReasonBadAgentName)
	}
	for _, name := range []string{".", "-", "_", strings.Repeat("a", 64), "A.b-c_9"} {
		r.do(call{agent: name, target: "/peers"}).want(http.StatusOK, nil)
	}
}
