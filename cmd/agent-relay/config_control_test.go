package main

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestControlSocketPath(t *testing.T) {
	for _, test := range []struct {
		name, config string
		env          []string
		want         string
	}{
		{"config", "/c.sock", []string{"AGENT_RELAY_SOCKET", "/e.sock"}, "/c.sock"},
		{"environment", "", []string{"AGENT_RELAY_SOCKET", "/e.sock", "RUNTIME_DIRECTORY", "/r"}, "/e.sock"},
		{"service", "", []string{"RUNTIME_DIRECTORY", "/r:/s", "XDG_RUNTIME_DIR", "/x"}, "/r/control.sock"},
		{"user", "", []string{"XDG_RUNTIME_DIR", "/x"}, "/x/agent-relay/control.sock"},
		{"neither", "", nil, "/data/run/control.sock"},
		{"off", "off", []string{"AGENT_RELAY_SOCKET", "/e.sock"}, ""},
		{"off in the environment", "", []string{"AGENT_RELAY_SOCKET", "off"}, ""},
	} {
		c := &config{ControlSocket: test.config}
		got, err := c.controlSocket(variables(test.env...), "/data")
		if err != nil || got != filepath.FromSlash(test.want) && filepath.VolumeName(got) == "" {
			t.Errorf("%s: got %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

// Each key either changes while the broker runs, or is said to need a restart.
func TestReloadedKeys(t *testing.T) {
	changes := map[string]func(*config){
		"agents":             func(c *config) { c.Agents = map[string]agentConfig{"a": {AllowedTargets: []string{}}} },
		"require_agent_keys": func(c *config) { c.RequireAgentKeys = true },
		"require_single_use": func(c *config) { c.RequireSingleUse = true },
		"heartbeat":          func(c *config) { c.Heartbeat = time.Hour },
		"lockout":            func(c *config) { c.Lockout.Failures = 7 },

		"listen":          func(c *config) { c.Listen = "127.0.0.1:7" },
		"public_hosts":    func(c *config) { c.PublicHosts = []string{"h"} },
		"data_dir":        func(c *config) { c.DataDir = "/d" },
		"storage":         func(c *config) { c.Storage = storageMemory },
		"secret":          func(c *config) { c.Secret = testSecret },
		"message_ttl":     func(c *config) { c.MessageTTL = time.Hour },
		"lease":           func(c *config) { c.Lease = time.Hour },
		"max_attempts":    func(c *config) { c.MaxAttempts = 7 },
		"max_body_bytes":  func(c *config) { c.MaxBodyBytes = 7 },
		"rate_limit":      func(c *config) { c.RateLimit.PerAddress = 7 },
		"hooks":           func(c *config) { c.Hooks.PreMessage = hooksEnforce },
		"connectors":      func(c *config) { c.Connectors = map[string]*connectorConfig{"chat": {}} },
		"control_socket":  func(c *config) { c.ControlSocket = socketOff },
		"trusted_proxies": func(c *config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("::/0")} },
		"metrics":         func(c *config) { c.Metrics = new(false) },
		"tls":             func(c *config) { c.TLS.CertFile = "/c" },
		"behind_proxy":    func(c *config) { c.BehindProxy = true },
		"public_prefix":   func(c *config) { c.PublicPrefix = "/r" },
		"ca_file":         func(c *config) { c.CAFile = "/ca" },
		"max_connections": func(c *config) { c.MaxConnections = 77 },
		"max_queued":      func(c *config) { c.MaxQueued = 7 },

		"max_queued_bytes": func(c *config) { c.MaxQueuedBytes = 7 },
	}
	reloadable := []string{"agents", "require_agent_keys", "require_single_use", "heartbeat", "lockout"}
	if got := defaultConfig().needsRestart(defaultConfig()); got != nil {
		t.Errorf("with nothing changed, %q need a restart", got)
	}
	for key := range defaultConfig().fields() {
		change := changes[key]
		if change == nil {
			t.Errorf("say of %s whether it changes while the broker runs", key)
			continue
		}
		next := defaultConfig()
		change(next)
		changed := !cmp.Equal(defaultConfig().reloadable(), next.reloadable())
		restart := slices.Equal(defaultConfig().needsRestart(next), []string{key})
		if changes := slices.Contains(reloadable, key); changed != changes || restart == changes {
			t.Errorf("%s: it changes: %t, it needs a restart: %t", key, changed, restart)
		}
	}
}
