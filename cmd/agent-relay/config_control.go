package main

import (
	"reflect"

	"github.com/agent-relay/agent-relay/broker"
)

func (v *validation) control() { v.socket("control_socket", v.c.ControlSocket) }

// controlSocket is where the broker is driven; empty is nowhere.
func (c *config) controlSocket(env func(string) string, dataDir string) (string, error) {
	return socketPath(firstOf(c.ControlSocket, env("AGENT_RELAY_SOCKET")), "control.sock", env, dataDir)
}

// reloadable is what c says of the things that may change while the broker runs.
func (c *config) reloadable() broker.ReloadOptions {
	return broker.ReloadOptions{
		AllowedTargets: c.allowedTargets(), RequireAgentKeys: c.RequireAgentKeys, RequireSingleUse: c.RequireSingleUse,
		Heartbeat: c.Heartbeat, Lockout: broker.Lockout{Failures: c.Lockout.Failures, Duration: c.Lockout.Duration},
	}
}

// fixedKeys are the keys that count when the broker is started, and what they
// set. The others are those of reloadable.
var fixedKeys = []struct {
	key   string
	value func(*config) any
}{
	{"listen", func(c *config) any { return c.Listen }},
	{"public_hosts", func(c *config) any { return c.PublicHosts }},
	{"data_dir", func(c *config) any { return c.DataDir }},
	{"storage", func(c *config) any { return c.Storage }},
	{"secret", func(c *config) any { return c.Secret }},
	{"message_ttl", func(c *config) any { return c.MessageTTL }},
	{"lease", func(c *config) any { return c.Lease }},
	{"max_attempts", func(c *config) any { return c.MaxAttempts }},
	{"max_body_bytes", func(c *config) any { return c.MaxBodyBytes }},
	{"rate_limit", func(c *config) any { return c.RateLimit }},
	{"hooks", func(c *config) any { return c.Hooks }},
	{"connectors", func(c *config) any { return c.Connectors }},
	{"control_socket", func(c *config) any { return c.ControlSocket }},
	{"trusted_proxies", func(c *config) any { return c.TrustedProxies }},
	{"metrics", func(c *config) any { return c.Metrics }},
	{"tls", func(c *config) any { return c.TLS }},
	{"behind_proxy", func(c *config) any { return c.BehindProxy }},
	{"public_prefix", func(c *config) any { return c.PublicPrefix }},
	{"ca_file", func(c *config) any { return c.CAFile }},
	{"max_connections", func(c *config) any { return c.MaxConnections }},
	{"max_queued", func(c *config) any { return c.MaxQueued }},
	{"max_queued_bytes", func(c *config) any { return c.MaxQueuedBytes }},
}

// needsRestart lists the keys that next sets otherwise than c, and that count
// when the broker is started.
func (c *config) needsRestart(next *config) (keys []string) {
	for _, k := range fixedKeys {
		if !reflect.DeepEqual(k.value(c), k.value(next)) {
			keys = append(keys, k.key)
		}
	}
	return keys
}
