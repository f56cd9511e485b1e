package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnit(t *testing.T) {
	unit, err := Unit(UnitOptions{
		Executable: `/opt/a b/agent-relay`, Config: `/etc/50% "of" $HOME\x/config.yaml`, User: "relay", Path: `/usr/bin:/opt/100%/$bin`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`ExecStart="/opt/a b/agent-relay" serve --log-format json --config "/etc/50%% \"of\" $$HOME\\x/config.yaml"`,
		`Environment="PATH=/usr/bin:/opt/100%%/$bin"`,
		"User=relay", "RuntimeDirectory=agent-relay", "StateDirectory=agent-relay", `Environment="XDG_DATA_HOME=/var/lib"`,
		"ProtectSystem=strict", "NoNewPrivileges=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "Type=notify",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("there is no line %s in\n%s", line, unit)
		}
	}
	// Hooks may be run by interpreters that compile what they run.
	if strings.Contains(unit, "MemoryDenyWriteExecute") {
		t.Error("hooks that compile cannot run")
	}
	if unit, err = Unit(UnitOptions{DataDir: "/srv/a b"}); err != nil || !strings.Contains(unit, "\nReadWritePaths=\"/srv/a b\"\n") || strings.Contains(unit, "StateDirectory") {
		t.Errorf("with a data directory: %v\n%s", err, unit)
	}
	if _, err := Unit(UnitOptions{Path: "/bin\nExecStartPre=/bin/x"}); err == nil {
		t.Error("a line can be smuggled in")
	}
}

func TestUnitIsValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("AGENT_RELAY_REQUIRE_PEERS") == "1" {
			t.Fatal(err)
		}
		t.Skip("there is no systemd-analyze here")
	}
	dir := filepath.Join(t.TempDir(), `a b$c`)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	executable := filepath.Join(dir, "agent-relay")
	if err := os.WriteFile(executable, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	unit, err := Unit(UnitOptions{
		Executable: executable, Config: filepath.Join(dir, "50%.yaml"), User: "root", Path: "/usr/bin:/bin:/opt/50%",
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agent-relay.service")
	if err := os.WriteFile(path, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || strings.Contains(string(out), "agent-relay.service") {
		t.Errorf("%v:\n%s\n%s", err, out, unit)
	}
}
