package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewClient(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wildcard := write("wildcard.yaml", "listen: 0.0.0.0:4000\nsecret: "+scriptSecret+"\n")
	wildcard6 := write("wildcard6.yaml", "listen: '[::]:4000'\nsecret: "+scriptSecret+"\n")
	big := write("big", strings.Repeat("x", maxSecretBytes+1))
	// The defaults of a config need one.
	home := []string{"HOME=" + dir, "LocalAppData=" + dir}
	for _, c := range []struct {
		name   string
		flags  clientFlags
		env    []string
		url    string
		status int
		says   string
	}{
		{"defaults without a home", clientFlags{agent: "alpha"}, []string{"AGENT_RELAY_SECRET=s"}, "http://127.0.0.1:19121", 0, ""},
		{"no secret without a home", clientFlags{agent: "alpha"}, nil, "", exitUsage, "no secret"},
		{"the listen address", clientFlags{agent: "alpha", config: wildcard}, home, "http://127.0.0.1:4000", 0, ""},
		{"the listen address, IPv6", clientFlags{agent: "alpha", config: wildcard6}, home, "http://[::1]:4000", 0, ""},
		{"the variable before the config", clientFlags{agent: "alpha", config: wildcard}, append(home, "AGENT_RELAY_URL=http://h:1"), "http://h:1", 0, ""},
		{"the flag before the variable", clientFlags{agent: "alpha", url: "http://f:1"}, []string{"AGENT_RELAY_URL=http://h:1", "AGENT_RELAY_SECRET=s"}, "http://f:1", 0, ""},
		{"secret and URL given, the config is not read", clientFlags{agent: "alpha", url: "http://f:1", config: big}, []string{"AGENT_RELAY_SECRET=s"}, "http://f:1", 0, ""},
		{"a secret too big", clientFlags{agent: "alpha"}, []string{"AGENT_RELAY_SECRET_FILE=" + big}, "", exitFailure, "over 65536 bytes"},
		{"a secret that is a directory", clientFlags{agent: "alpha"}, []string{"AGENT_RELAY_SECRET_FILE=" + dir}, "", exitFailure, "AGENT_RELAY_SECRET_FILE"},
		{"no agent", clientFlags{}, []string{"AGENT_RELAY_SECRET=s"}, "", exitUsage, "--agent"},
		{"a bad URL", clientFlags{agent: "alpha", url: "host"}, []string{"AGENT_RELAY_SECRET=s"}, "", exitUsage, "http or https"},
	} {
		a := &app{env: lookup(c.env)}
		got, err := a.newClient(&c.flags)
		if c.status != 0 {
			if err == nil || exitStatus(err) != c.status || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want status %d and %q", c.name, err, c.status, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.URL() != c.url || got.Agent() != "alpha" {
			t.Errorf("%s: %s at %s, want %s", c.name, got.Agent(), got.URL(), c.url)
		}
	}
}

func TestTrimNewline(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "x": "x", "x\n": "x", "x\r\n": "x", "x\n\n": "x\n", "x\r": "x\r", "\n": "", "\r\n": "", " x \n": " x ", "x\n\r\n": "x\n",
	} {
		if got := trimNewline(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
