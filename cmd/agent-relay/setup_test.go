package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agent-relay/agent-relay/broker/connector"

	"github.com/agent-relay/agent-relay/setup"
)

// The config that init writes means the defaults, and so does what it shows in
// comments, but for the examples among it.
func TestInitWritesDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if _, err := setup.Init(setup.InitOptions{Path: path}); err != nil {
		t.Fatal(err)
	}
	env := variables("HOME", "/home/x", "LocalAppData", `C:\x`)
	made, err := loadConfig(path, env)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(made.Secret); n != 64 {
		t.Errorf("the secret has %d characters", n)
	}
	want := defaultConfig()
	want.Secret, want.DataDir = made.Secret, made.DataDir
	if diff := cmp.Diff(want, made, ignoreLines); diff != "" {
		t.Error(diff)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		// Text follows one space; keys follow none, what is below them two.
		if !strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "#  ") {
			line = strings.TrimPrefix(line, "#")
		}
		lines = append(lines, line)
	}
	shown, err := loadTestConfig(t, strings.Join(lines, ""))
	if err != nil {
		t.Fatal(err)
	}
	want.DataDir = "/var/lib/agent-relay"
	want.Metrics = new(true)
	want.ControlSocket = "/run/user/1000/agent-relay/control.sock"
	want.Agents = map[string]agentConfig{"worker": {AllowedTargets: []string{"planner"}}}
	want.Connectors = map[string]*connectorConfig{"telegram": {
		URL: "https://bridge.example/", GatewayID: "gw-1", SecretFile: "/etc/agent-relay/telegram.secret", TokenTTL: 5 * time.Minute,
		Identities: []connector.Identity{{Platform: "telegram", BotID: "123"}}, DeliverTo: "assistant",
		Routes: []routeConfig{{ChatID: "7", DeliverTo: "ops"}}, DeliverySkew: 5 * time.Minute,
	}}
	if diff := cmp.Diff(want, shown, ignoreLines, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for key := range want.fields() {
		if shown.lines[key] == 0 {
			t.Errorf("the config shows no %s", key)
		}
	}
}

// Modes are the owner's alone when the command makes config and directories.
func TestSetupInitModes(t *testing.T) {
	needModes(t)
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "config.yaml")
	var out strings.Builder
	if status := run(t.Context(), []string{"setup", "init", "--config", path}, nil, nil, &out, &out); status != 0 {
		t.Fatalf("exit status %d: %s", status, out.String())
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
}
