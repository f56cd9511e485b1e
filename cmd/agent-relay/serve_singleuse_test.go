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
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/register", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set(agentrelay.HeaderAgent, "alpha")
		q.Header.Set(agentrelay.HeaderTimestamp, stamp)
		q.Header.Set(agentrelay.HeaderSignature, agentrelay.Sign(scriptSecret, q.Method, "/register", stamp, nil))
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%q: %s, %v", line, body, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
