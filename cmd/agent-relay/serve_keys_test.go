package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The config says whether the secret is good for agents without keys.
func TestServeRequiresAgentKeys(t *testing.T) {
	for line, want := range map[string]string{"": `"agent":"alpha"`, "require_agent_keys: true": `"code":"unknown_agent"`} {
		r := startRelay(t, relayOptions{lines: []string{line}})
		now := time.Now()
		if got := r.registers(fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())); !strings.Contains(got, want) {
			t.Errorf("%q: %s", line, got)
		}
	}
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
