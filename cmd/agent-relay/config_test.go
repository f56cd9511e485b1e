package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agent-relay/agent-relay/broker/connector"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// secretLine is what a config needs at least.
const secretLine = "secret: '" + testSecret + "'\n"

func writeTestConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// variables makes an environment of name, value pairs.
func variables(pairs ...string) func(string) string {
	env := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return env[name] }
}

func loadTestConfig(t *testing.T, content string) (*config, error) {
	t.Helper()
	return loadConfig(writeTestConfig(t, content), variables("HOME", "/home/x", "LocalAppData", `C:\x`))
}

const behindProxy = secretLine + "public_hosts: [a]\ntrusted_proxies: [127.0.0.1]\nbehind_proxy: true\n"

var ignoreLines = cmpopts.IgnoreUnexported(config{})

func comparePrefixes(a, b netip.Prefix) bool { return a == b }

func TestConfigDefaults(t *testing.T) {
	for name, content := range map[string]string{
		"only the secret":    secretLine,
		"double quotes":      `secret: "` + testSecret + `"`,
		"plain":              "secret: s" + testSecret[1:],
		"block scalar":       "secret: >-\n  s" + testSecret[1:] + "\n",
		"JSON":               `{"secret": "` + testSecret + `"}`,
		"byte order mark":    "\ufeff" + secretLine,
		"CRLF":               "# a\r\n" + strings.ReplaceAll(secretLine, "\n", "\r\n") + "lease: 10m\r\n",
		"document start":     "---\n" + secretLine + "...\n",
		"comments":           "# one\n\n" + secretLine + "# two\n",
		"keys left empty":    secretLine + "metrics:\nlisten:\nrate_limit:\nagents:\n# none\nlockout: {failures: }\ndata_dir: ''\n",
		"tab after a value":  strings.TrimSpace(secretLine) + "\t# x\n",
		"no final newline":   strings.TrimSpace(secretLine),
		"defaults spelt out": secretLine + "listen: 127.0.0.1:19121\nstorage: sqlite\nmessage_ttl: 168h\nlease: 10m\nmax_attempts: 3\nmax_body_bytes: 1048576\nmax_connections: 1024\nmax_queued: 10000\nmax_queued_bytes: 67108864\nheartbeat: 90s\nrate_limit: {per_agent: 60000, per_address: 120}\nlockout: {failures: 5, duration: 5m}\nrequire_single_use: false\nrequire_agent_keys: false\nhooks: {timeout: 5s, max_concurrent: 4, pre_message: advisory}\ncontrol_socket: ''\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := loadTestConfig(t, content)
			if err != nil {
				t.Fatal(err)
			}
			want := &config{
				Listen: "127.0.0.1:19121", Storage: "sqlite", DataDir: got.DataDir, Secret: got.Secret,
				MessageTTL: 168 * time.Hour, Lease: 10 * time.Minute, MaxAttempts: 3, MaxBodyBytes: 1048576, MaxConnections: 1024, MaxQueued: 10000, MaxQueuedBytes: 64 << 20, Heartbeat: 90 * time.Second,
				RateLimit: rateLimitConfig{60000, 120}, Lockout: lockoutConfig{5, 5 * time.Minute},
				Hooks: hooksConfig{Timeout: 5 * time.Second, MaxConcurrent: 4, PreMessage: "advisory"},
			}
			if diff := cmp.Diff(want, got, ignoreLines, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if s := string(got.Secret); s[1:] != testSecret[1:] {
				t.Errorf("secret is %q", s)
			}
			if !strings.HasSuffix(filepath.ToSlash(got.DataDir), "/agent-relay") || !filepath.IsAbs(got.DataDir) {
				t.Errorf("data directory is %s", got.DataDir)
			}
		})
	}
}

func TestConfigEveryKey(t *testing.T) {
	dir := t.TempDir()
	got, err := loadTestConfig(t, `
listen: "[::1]:0"
public_hosts: [relay.example.org, 10.0.0.5, "fe80::1", under_score]
data_dir: '`+dir+`'
storage: memory
secret: "ünïcode-ünïcode-ünïcode-ünïcode-"
message_ttl: 1h30m
lease: 1s
max_attempts: 1
max_body_bytes: 0x400
tls: {cert_file: /c, key_file: /k}
behind_proxy: true
public_prefix: /a/b
ca_file: /ca
max_connections: 16
max_queued: 1
max_queued_bytes: 1024
heartbeat: 24h
rate_limit:
  per_agent: 1
  per_address: 2
lockout:
  failures: 7
  duration: 1m
trusted_proxies:
  - 10.1.2.3
  - 10.9.9.9/8
  - ::1
  - "::ffff:1.2.3.4"
agents:
  free:
  open: {}
  none: { allowed_targets: [] }
  some:
    allowed_targets:
    - a
    - "1"
  "7": {allowed_targets: [b]}
metrics: false
require_single_use: true
require_agent_keys: true
hooks: {dir: `+filepath.Join(dir, "hooks.d")+`, socket: off, timeout: 100ms, max_concurrent: 64, pre_message: enforce}
control_socket: off
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &config{
		Listen: "[::1]:0", PublicHosts: []string{"relay.example.org", "10.0.0.5", "fe80::1", "under_score"}, DataDir: dir, Storage: "memory",
		Secret: "ünïcode-ünïcode-ünïcode-ünïcode-", RequireSingleUse: true, RequireAgentKeys: true, Hooks: hooksConfig{filepath.Join(dir, "hooks.d"), "off", 100 * time.Millisecond, 64, "enforce"}, ControlSocket: "off", MessageTTL: 90 * time.Minute, Lease: time.Second, MaxAttempts: 1, MaxBodyBytes: 1024, MaxConnections: 16, TLS: tlsConfig{"/c", "/k"}, BehindProxy: true, PublicPrefix: "/a/b", CAFile: "/ca", MaxQueued: 1, MaxQueuedBytes: 1024,
		Heartbeat: 24 * time.Hour, RateLimit: rateLimitConfig{1, 2}, Lockout: lockoutConfig{7, time.Minute},
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.1.2.3/32"), netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("1.2.3.4/32"),
		},
		Agents: map[string]agentConfig{
			"free": {}, "open": {}, "none": {AllowedTargets: []string{}}, "some": {AllowedTargets: []string{"a", "1"}}, "7": {AllowedTargets: []string{"b"}},
		},
		Metrics: new(false),
	}
	// An empty list of targets and none at all are not the same.
	if diff := cmp.Diff(want, got, ignoreLines, cmp.Comparer(comparePrefixes)); diff != "" {
		t.Error(diff)
	}
	acl := map[string][]string{"none": {}, "some": {"a", "1"}, "7": {"b"}}
	if diff := cmp.Diff(acl, got.allowedTargets()); diff != "" {
		t.Error(diff)
	}
}

// chatConfig is a config with a connector, whose last keys are on lines 8 and 9.
func chatConfig(more string) string {
	if more != "" {
		more = "    " + more + "\n"
	}
	return secretLine + "connectors:\n  chat:\n    url: http://127.0.0.1:1\n    gateway_id: gw\n    secret_file: /secrets\n" +
		"    identities: [{platform: p}]\n" + more + "    deliver_to: ben\n"
}

func TestConfigConnectors(t *testing.T) {
	c, err := loadTestConfig(t, chatConfig("routes: [{chat_id: '7', platform: p, deliver_to: ann}]")+
		"    token_ttl: 1m\n    delivery_keys_file: /keys\n    delivery_skew: 10s\n")
	if err != nil {
		t.Fatal(err)
	}
	want := &connectorConfig{
		URL: "http://127.0.0.1:1", GatewayID: "gw", SecretFile: "/secrets", TokenTTL: time.Minute, DeliverTo: "ben",
		Identities: []connector.Identity{{Platform: "p"}}, Routes: []routeConfig{{"p", "7", "ann"}},
		DeliveryKeysFile: "/keys", DeliverySkew: 10 * time.Second,
	}
	if diff := cmp.Diff(map[string]*connectorConfig{"chat": want}, c.Connectors); diff != "" {
		t.Error(diff)
	}
	c, err = loadTestConfig(t, chatConfig(""))
	if err != nil || c.Connectors["chat"].TokenTTL != 5*time.Minute || c.Connectors["chat"].DeliverySkew != 5*time.Minute {
		t.Errorf("the defaults are %+v, %v", c.Connectors["chat"], err)
	}
}

func TestConfigProblems(t *testing.T) {
	const name = "must be an agent name: 1 to 64 of A-Z a-z 0-9 _ . -"
	for _, test := range []struct{ name, content, want string }{
		// FILE stands for the path.
		{"empty", "", "FILE:1: secret: is missing"},
		{"only comments", "# nothing\n", "FILE:1: secret: is missing"},
		{"null document", "null\n", "FILE:1: write keys and values here"},
		{"scalar", "hello\n", "FILE:1: write keys and values here"},
		{"list", "- a\n", "FILE:1: write keys and values here"},
		{"no secret", "listen: 127.0.0.1:1\n", "FILE:1: secret: is missing"},
		{"empty secret", "\nsecret: ''\n", "FILE:2: secret: is missing"},
		{"short secret", "\nsecret: '" + testSecret[1:] + "'\n", "FILE:2: secret: must be at least 32 characters"},
		{"secret with a space", "secret: '" + testSecret + " x'\n", "FILE:1: secret: must not hold spaces"},
		{"secret with a newline", "secret: |\n  " + testSecret + "\n", "FILE:1: secret: must not hold spaces"},
		{"secret as a list", "secret: [a]\n", "FILE:1: secret: must be text, not a list or an object"},
		{"secret as a list", "secret: [a]\n", "FILE:1: secret: must be text, not a list"},
		{"unknown key", secretLine + "lisen: a\n", "FILE:2: lisen: there is no such key; the keys here are agents, behind_proxy, ca_file, connectors, control_socket, data_dir, heartbeat, "},
		{"wrong case", secretLine + "Listen: 127.0.0.1:1\n", "FILE:2: Listen: there is no such key"},
		{"unknown key below", secretLine + "lockout:\n  failure: 1\n", "FILE:3: lockout.failure: there is no such key; the keys here are duration, failures"},
		{"unknown key of an agent", secretLine + "agents:\n  a: {targets: [b]}\n", "FILE:3: agents.a.targets: there is no such key; the keys here are allowed_targets"},
		{"empty complex key", secretLine + "? \n", "FILE:2: complex keys"},
		{"duplicate key", secretLine + "lease: 1m\nlease: 2m\n", "FILE:3: lease: this key stands at line 2 already"},
		{"duplicate key below", secretLine + "lockout: {failures: 1, failures: 2}\n", "FILE:2: lockout.failures: this key stands at line 2 already"},
		{"duplicate agent", secretLine + "agents:\n  a: {}\n  a: {}\n", "FILE:4: agents.a: this key stands at line 3 already"},
		{"key that is no text", secretLine + "1: a\n", "FILE:2: a key must be text"},
		{"agent key that is no text", secretLine + "agents:\n  7: {}\n", "FILE:3: agents: a key must be text"},
		{"listen without port", secretLine + "listen: localhost\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen with a bad port", secretLine + "listen: localhost:65536\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen with a named port", secretLine + "listen: localhost:http\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen without a port after the colon", secretLine + "listen: 'localhost:'\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen with a scheme", secretLine + "listen: http://localhost:1\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen with a bad host", secretLine + "listen: 'a b:1'\n", "FILE:2: listen: must be HOST:PORT"},
		{"listen as a number", secretLine + "listen: 19121\n", "FILE:2: listen: must be text"},
		{"public host with a port", secretLine + "public_hosts:\n- a\n- b:1\n", "FILE:4: public_hosts[1]: must be a host name or address alone"},
		{"public host with a dash", secretLine + "public_hosts: [-a]\n", "FILE:2: public_hosts[0]: must be a host name"},
		{"public host with an empty label", secretLine + "public_hosts: [a..b]\n", "FILE:2: public_hosts[0]: must be a host name"},
		{"public host that is empty", secretLine + "public_hosts: ['']\n", "FILE:2: public_hosts[0]: must be a host name"},
		{"public hosts that are one", secretLine + "public_hosts: a\n", "FILE:2: public_hosts: must be a list"},
		{"public host that is null", secretLine + "public_hosts: [null]\n", "FILE:2: public_hosts[0]: must be text"},
		{"relative control socket", secretLine + "control_socket: run/c.sock\n", "FILE:2: control_socket: must be an absolute path, or off"},
		{"relative data directory", secretLine + "data_dir: data\n", "FILE:2: data_dir: must be an absolute path"},
		{"home data directory", secretLine + "data_dir: ~/data\n", "FILE:2: data_dir: must be an absolute path; ~ "},
		{"storage", secretLine + "storage: postgres\n", "FILE:2: storage: must be sqlite or memory"},
		{"duration without unit", secretLine + "lease: 600\n", "FILE:2: lease: must be a duration with its unit"},
		{"duration in days", secretLine + "message_ttl: 7d\n", "FILE:2: message_ttl: must be a duration with its unit"},
		{"duration as a list", secretLine + "message_ttl: [1h]\n", "FILE:2: message_ttl: must be a duration with its unit"},
		{"ttl too short", secretLine + "message_ttl: 999ms\n", "FILE:2: message_ttl: must be from 1s to 8784h"},
		{"ttl too long", secretLine + "message_ttl: 9000h\n", "FILE:2: message_ttl: must be from 1s to 8784h"},
		{"lease too short", secretLine + "lease: 0s\n", "FILE:2: lease: must be from 1s to 24h"},
		{"lease too long", secretLine + "lease: 24h1s\n", "FILE:2: lease: must be from 1s to 24h"},
		{"negative lease", secretLine + "lease: -1m\n", "FILE:2: lease: must be from 1s to 24h"},
		{"heartbeat", secretLine + "heartbeat: 25h\n", "FILE:2: heartbeat: must be from 1s to 24h"},
		{"no attempts", secretLine + "max_attempts: 0\n", "FILE:2: max_attempts: must be from 1 to 1000"},
		{"negative attempts", secretLine + "max_attempts: -1\n", "FILE:2: max_attempts: must be from 1 to 1000"},
		{"part of an attempt", secretLine + "max_attempts: 1.5\n", "FILE:2: max_attempts: must be a whole number"},
		{"attempts in quotes", secretLine + "max_attempts: '1'\n", "FILE:2: max_attempts: must be a whole number"},
		{"very many attempts", secretLine + "max_attempts: 99999999999999999999\n", "FILE:2: max_attempts: "},
		{"many attempts", secretLine + "max_attempts: 4294967297\n", "FILE:2: max_attempts: is out of range"},
		{"very few attempts", secretLine + "max_attempts: -4294967297\n", "FILE:2: max_attempts: is out of range"},
		{"infinite attempts", secretLine + "max_attempts: .inf\n", "FILE:2: max_attempts: must be a whole number"},
		{"true attempts", secretLine + "max_attempts: true\n", "FILE:2: max_attempts: must be a whole number"},
		{"small bodies", secretLine + "max_body_bytes: 1023\n", "FILE:2: max_body_bytes: must be from 1024 to 67108864"},
		{"large bodies", secretLine + "max_body_bytes: 67108865\n", "FILE:2: max_body_bytes: must be from 1024 to 67108864"},
		{"a certificate without a key", secretLine + "tls: {cert_file: /c}\n", "FILE:2: tls: has a cert_file and no key_file"},
		{"a key without a certificate", secretLine + "tls: {key_file: /c}\n", "FILE:2: tls: has a key_file and no cert_file"},
		{"a certificate somewhere", secretLine + "tls:\n  cert_file: c\n  key_file: /k\n", "FILE:3: tls.cert_file: must be an absolute path"},
		{"a key somewhere", secretLine + "tls:\n  cert_file: /c\n  key_file: k\n", "FILE:4: tls.key_file: must be an absolute path"},
		{"authorities somewhere", secretLine + "ca_file: ~/ca\n", "FILE:2: ca_file: must be an absolute path"},
		{"a proxy that nobody trusts", secretLine + "public_hosts: [a]\nbehind_proxy: true\n", "FILE:3: behind_proxy: needs trusted_proxies"},
		{"a proxy without a name", secretLine + "trusted_proxies: [127.0.0.1]\nbehind_proxy: true\n", "FILE:3: behind_proxy: needs public_hosts"},
		{"a prefix that ends with a slash", behindProxy + "public_prefix: /a/\n", "FILE:5: public_prefix: must be a path such as /relay"},
		{"a prefix that begins with none", behindProxy + "public_prefix: a\n", "FILE:5: public_prefix: must be a path such as /relay"},
		{"a prefix with a query", behindProxy + "public_prefix: /a?b\n", "FILE:5: public_prefix: must be a path such as /relay"},
		{"a prefix without a proxy", secretLine + "public_prefix: /a\n", "FILE:2: public_prefix: needs behind_proxy: true"},
		{"few connections", secretLine + "max_connections: 15\n", "FILE:2: max_connections: must be from 16 to 1000000"},
		{"no queue", secretLine + "max_queued: 0\n", "FILE:2: max_queued: must be from 1 to 100000000"},
		{"no bytes in the queue", secretLine + "max_queued_bytes: 1023\nmax_body_bytes: 1024\n", "FILE:2: max_queued_bytes: must be from 1024 to 2147483647"},
		{"a queue smaller than a message", secretLine + "max_queued_bytes: 1048575\n", "FILE:2: max_queued_bytes: must not be less than max_body_bytes"},
		{"no rate", secretLine + "rate_limit: {per_agent: 0}\n", "FILE:2: rate_limit.per_agent: must be from 1 to "},
		{"no rate of refusals", secretLine + "rate_limit:\n  per_address: 0\n", "FILE:3: rate_limit.per_address: must be from 1 to "},
		{"rate limit as a number", secretLine + "rate_limit: 5\n", "FILE:2: rate_limit: write keys and values here"},
		{"no failures", secretLine + "lockout: {failures: 0}\n", "FILE:2: lockout.failures: must be from 1 to 1000"},
		{"lockout for ever", secretLine + "lockout: {duration: 100h}\n", "FILE:2: lockout.duration: must be from 1s to 24h"},
		{"proxy by name", secretLine + "trusted_proxies: [localhost]\n", "FILE:2: trusted_proxies[0]: must be an address or a network"},
		{"proxy with a zone", secretLine + "trusted_proxies: ['fe80::1%eth0']\n", "FILE:2: trusted_proxies[0]: must be an address or a network"},
		{"proxy network too wide", secretLine + "trusted_proxies:\n- 10.0.0.0/8\n- 10.0.0.0/33\n", "FILE:4: trusted_proxies[1]: must be an address or a network"},
		{"proxies as one", secretLine + "trusted_proxies: 10.0.0.1\n", "FILE:2: trusted_proxies: must be a list"},
		{"hooks elsewhere", secretLine + "hooks: {dir: hooks.d}\n", "FILE:2: hooks.dir: must be an absolute path"},
		{"hook socket elsewhere", secretLine + "hooks: {socket: h.sock}\n", "FILE:2: hooks.socket: must be an absolute path, or off"},
		{"quick hooks", secretLine + "hooks: {timeout: 99ms}\n", "FILE:2: hooks.timeout: must be from 100ms to 1m0s"},
		{"slow hooks", secretLine + "hooks: {timeout: 61s}\n", "FILE:2: hooks.timeout: must be from 100ms to 1m0s"},
		{"slow hooks that decide", secretLine + "hooks:\n  pre_message: enforce\n  timeout: 9s\n", "FILE:4: hooks.timeout: must be at most 8s with pre_message: enforce"},
		{"no hooks at a time", secretLine + "hooks: {max_concurrent: 0}\n", "FILE:2: hooks.max_concurrent: must be from 1 to 64"},
		{"hooks that demand", secretLine + "hooks: {pre_message: demand}\n", "FILE:2: hooks.pre_message: must be advisory or enforce"},
		{"metrics as text", secretLine + "metrics: 'true'\n", "FILE:2: metrics: must be true or false"},
		{"metrics as yes", secretLine + "metrics: yes\n", "FILE:2: metrics: must be true or false"},
		{"metrics as a number", secretLine + "metrics: 1\n", "FILE:2: metrics: must be true or false"},
		{"metrics as a list", secretLine + "metrics: [true]\n", "FILE:2: metrics: must be true or false"},
		{"connectors as a list", secretLine + "connectors: [a]\n", "FILE:2: connectors: write keys and values here"},
		{"connector name", secretLine + "connectors: {a b: {}}\n", "FILE:2: connectors.\"a b\": " + name},
		{"connector with another key", chatConfig("uri: x"), "FILE:8: connectors.chat.uri: there is no such key"},
		{"connector without url", strings.Replace(chatConfig(""), "    url: http://127.0.0.1:1\n", "", 1), "FILE:3: connectors.chat: url is missing"},
		{"connector of another scheme", strings.Replace(chatConfig(""), "http:", "ftp:", 1), "FILE:4: connectors.chat.url: cannot be dialled: the connector's url must begin with"},
		{"connector with a relative file", strings.Replace(chatConfig(""), "/secrets", "secrets", 1), "FILE:6: connectors.chat.secret_file: must be an absolute path"},
		{"connector with a relative key file", chatConfig("delivery_keys_file: keys"), "FILE:8: connectors.chat.delivery_keys_file: must be an absolute path"},
		{"connector without identities", strings.Replace(chatConfig(""), "{platform: p}", "", 1), "FILE:3: connectors.chat: identities is missing"},
		{"identities as one", strings.Replace(chatConfig(""), "[{platform: p}]", "{platform: p}", 1), "FILE:7: connectors.chat.identities: must be a list of objects"},
		{"identity without platform", strings.Replace(chatConfig(""), "platform: p", "bot_id: p", 1), "FILE:7: connectors.chat.identities[0]: needs a platform"},
		{"identity twice", strings.Replace(chatConfig(""), "{platform: p}", "{platform: p}, {platform: p}", 1), "FILE:7: connectors.chat.identities[1]: stands in this list already"},
		{"identity with a number", strings.Replace(chatConfig(""), "platform: p", "platform: p, bot_id: 7", 1), "FILE:7: connectors.chat.identities[0].bot_id: must be text"},
		{"connector for nobody", strings.Replace(chatConfig(""), "    deliver_to: ben\n", "", 1), "FILE:3: connectors.chat: deliver_to is missing"},
		{"connector for a connector", strings.Replace(chatConfig(""), "deliver_to: ben", "deliver_to: chat", 1), "FILE:8: connectors.chat.deliver_to: is a connector"},
		{"connector for no name", strings.Replace(chatConfig(""), "deliver_to: ben", "deliver_to: b n", 1), "FILE:8: connectors.chat.deliver_to: " + name},
		{"route for all", chatConfig("routes: [{deliver_to: ann}]"), "FILE:8: connectors.chat.routes[0]: needs chat_id or platform"},
		{"route to nobody", chatConfig("routes: [{chat_id: c}]"), "FILE:1: connectors.chat.routes[0].deliver_to: " + name},
		{"tokens without time", chatConfig("token_ttl: 0s"), "FILE:8: connectors.chat.token_ttl: must be from 1s to 24h"},
		{"tokens with fractions", chatConfig("token_ttl: 1500ms"), "FILE:8: connectors.chat.token_ttl: must be a whole number of seconds"},
		{"negative skew", chatConfig("delivery_skew: -1s"), "FILE:8: connectors.chat.delivery_skew: must be from 1s to 1h"},
		{"connector that is an agent", chatConfig("") + "agents: {chat: {}}\n", "FILE:9: agents.chat: is the name of a connector"},
		{"agents as a list", secretLine + "agents: [a]\n", "FILE:2: agents: write keys and values here"},
		{"agent name", secretLine + "agents: {a b: {}}\n", "FILE:2: agents.\"a b\": " + name},
		{"agent as a list", secretLine + "agents: {a: [b]}\n", "FILE:2: agents.a: write keys and values here"},
		{"target name", secretLine + "agents: {a: {allowed_targets: [b, c/d]}}\n", "FILE:2: agents.a.allowed_targets[1]: " + name},
		{"target twice", secretLine + "agents: {a: {allowed_targets: [b, b]}}\n", "FILE:2: agents.a.allowed_targets[1]: stands in this list already"},
		{"target as a number", secretLine + "agents: {a: {allowed_targets: [7]}}\n", "FILE:2: agents.a.allowed_targets[0]: must be text; put it in quotes"},
		{"targets left empty", secretLine + "agents:\n  a:\n    allowed_targets:\n    # - b\n", "FILE:4: agents.a.allowed_targets: is empty; write []"},
		{"targets as one", secretLine + "agents: {a: {allowed_targets: b}}\n", "FILE:2: agents.a.allowed_targets: must be a list"},
		{"two documents", secretLine + "---\nlease: 1m\n", "FILE:3: a config is one YAML document"},
		{"anchor", "lease: &x 1m\n" + secretLine, "FILE:1: anchors and aliases are not read here"},
		{"alias", secretLine + "lease: *x\n", "FILE:2: anchors and aliases are not read here"},
		{"merge key", secretLine + "lockout:\n  <<: {failures: 1}\n", "FILE:3: merge keys (<<) are not read here"},
		{"tag", secretLine + "lease: !!str 1m\n", "FILE:2: tags and directives are not read here"},
		{"directive", "%YAML 1.2\n---\n" + secretLine, "FILE:1: tags and directives are not read here"},
		{"complex key", "? a\n: b\n", "FILE:1: complex keys (?) are not read here"},
		{"tab indentation", secretLine + "lockout:\n\tfailures: 1\n", "FILE:3: this is not valid YAML: found "},
		{"unclosed bracket", secretLine + "public_hosts: [a\n", "FILE:2: this is not valid YAML: sequence end token ']' not found"},
		{"unclosed quote", "lease: 1m\nsecret: \"" + testSecret + "\n", "FILE:2: this is not valid YAML: could not find end character of double-quoted text"},
		{"indentation", secretLine + "lease: 1m\n  storage: sqlite\n", "FILE:2: this is not valid YAML: "},
		{"deep brackets", strings.Repeat("[", 100_000), "FILE:1: this nests deeper than any config does"},
		{"deep dashes", strings.Repeat("- ", 100_000), "FILE:1: this nests deeper than any config does"},
		{"control character", secretLine + "listen: \x00\n", "FILE:2: there is a control character (U+0000)"},
		{"lone carriage return", secretLine + "lease: 1m\rheartbeat: 1m", "FILE:2: there is a control character (U+000D)"},
		{"Latin 1", secretLine + "# caf\xe9\n", "FILE:2: this is not UTF-8 text"},
		{"UTF-16", "\xff\xfes\x00e\x00", "FILE:1: this is not UTF-8 text"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeTestConfig(t, test.content)
			_, err := loadConfig(path, variables("HOME", "/home/x"))
			var own *configError
			if !errors.As(err, &own) {
				t.Fatalf("got %v, want a *configError", err)
			}
			want := strings.Replace(test.want, "FILE", path, 1)
			if !strings.HasPrefix(own.Error(), want) {
				t.Errorf("got  %s\nwant %s", own, want)
			}
			if len(own.problems) != 1 {
				t.Errorf("one fault, several problems:\n%s", own)
			}
			if strings.Contains(own.Error(), testSecret[1:]) {
				t.Errorf("the error shows the secret: %s", own)
			}
		})
	}
}

// All that is wrong is reported at once, in the order of the file, syntax
// being the exception: after it nothing can be told.
func TestConfigReportsEverythingAtOnce(t *testing.T) {
	path := writeTestConfig(t, `lease: soon
bogus: 1
agents:
  "b b": {}
  a: { allowed_targets: [x, "y y", x] }
max_attempts: 0
storage: tape
listen: nowhere
lease: 1m
`)
	_, err := loadConfig(path, variables())
	var got []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		place, _, _ := strings.Cut(strings.TrimPrefix(line, path+":"), ": ")
		_, rest, _ := strings.Cut(strings.TrimPrefix(line, path+":"), ": ")
		key, _, _ := strings.Cut(rest, ": ")
		got = append(got, place+" "+key)
	}
	want := []string{
		"1 lease", "1 secret", "2 bogus", `4 agents."b b"`, "5 agents.a.allowed_targets[1]", "5 agents.a.allowed_targets[2]",
		"6 max_attempts", "7 storage", "8 listen", "9 lease",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
}

func TestConfigBaseURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:19121":  "http://127.0.0.1:19121",
		"localhost:1":      "http://localhost:1",
		"[::1]:2":          "http://[::1]:2",
		":3":               "http://127.0.0.1:3",
		"0.0.0.0:4":        "http://127.0.0.1:4",
		"[::]:5":           "http://[::1]:5",
		"192.168.1.1:6":    "http://192.168.1.1:6",
		"relay.internal:7": "http://relay.internal:7",
	} {
		c := defaultConfig()
		c.Listen = listen
		if got := c.baseURL(); got != want {
			t.Errorf("%s: got %s, want %s", listen, got, want)
		}
	}
}

// Whatever prints a config by accident does not print the secret.
func TestConfigHidesSecret(t *testing.T) {
	c, err := loadTestConfig(t, secretLine)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewJSONHandler(&log, nil))} {
		logger.Info("x", "config", c, "secret", c.Secret, "value", *c)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{
		log.String(), string(text), c.Secret.String(),
		fmt.Sprint(c, *c), fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprintf("%s %q", c.Secret, c.Secret),
	} {
		if strings.Contains(shown, testSecret) {
			t.Errorf("shows the secret: %s", shown)
		}
	}
}

// TestSecretThatLooksLikeANumber holds a secret to its digits as written.
func TestSecretThatLooksLikeANumber(t *testing.T) {
	for _, secret := range []string{
		"0123456701234567012345670123456701234567",
		"12345678901234567890123456789012345678901234567890",
		"1234567890123456789012345678901e12",
		"00000000000000000000000000000000000000000000",
	} {
		got, err := loadTestConfig(t, "secret: "+secret+"\n")
		if err != nil || string(got.Secret) != secret {
			t.Errorf("%s: %v", secret, err)
		}
	}
}
