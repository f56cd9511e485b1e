package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// The config says whether the secret is good for agents without keys.
func TestServeRequiresAgentKeys(t *testing.T) {
	for line, want := range map[string]string{"": `"agent":"alpha"`, "require_agent_keys: true": `"code":"unknown_agent"`} {
		r := startRelay(t, relayOptions{lines: []string{line}})
		now := time.Now()
		stamp := fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())
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

// A selfcheck knows that the secret lets nobody in.
func TestSelfcheckKnowsOfKeys(t *testing.T) {
	for line, want := range map[string]bool{"": false, "require_agent_keys: true": true} {
		path := relayConfig(t, line)
		if o := (&app{env: variables("HOME", t.TempDir())}).selfcheckOptions(path, "http://127.0.0.1:1"); o.ConfigErr == nil && o.RequireAgentKeys != want {
			t.Errorf("%q: keys are required: %v", line, o.RequireAgentKeys)
		} else if o.ConfigErr != nil {
			t.Errorf("%q: %v", line, o.ConfigErr)
		}
	}
}
