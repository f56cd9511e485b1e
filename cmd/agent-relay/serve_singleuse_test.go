package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// The config says whether whole seconds pass.
func TestServeRequiresSingleUse(t *testing.T) {
	for line, want := range map[string]string{"": `"agent":"alpha"`, "require_single_use: true": `"reason":"single_use_required"`} {
		r := startRelay(t, relayOptions{lines: []string{line}})
		r.registered("alpha") // our clients write fractions
		if got := r.registers(strconv.FormatInt(time.Now().Unix(), 10)); !strings.Contains(got, want) {
			t.Errorf("%q: %s", line, got)
		}
	}
}

// registers makes one signed call by hand, as alpha, and returns the answer.
func (r *relay) registers(timestamp string) string {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/register", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set(agentrelay.HeaderAgent, "alpha")
	q.Header.Set(agentrelay.HeaderTimestamp, timestamp)
	q.Header.Set(agentrelay.HeaderSignature, agentrelay.Sign(scriptSecret, q.Method, "/register", timestamp, nil))
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(body)
}
