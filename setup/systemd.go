package setup

import (
	"fmt"
	"strings"
)

// UnitOptions say what a systemd unit runs. All paths are absolute.
type UnitOptions struct {
	// Executable is this program, Config its config file.
	Executable, Config string
	// User runs the broker; it must own the config.
	User string
	// Path is the search path of the broker and of its hooks.
	Path string
	// DataDir is where messages are, if the config names it; empty for the
	// state directory that systemd makes, /var/lib/agent-relay.
	DataDir string
}

// Unit is a systemd service unit (systemd.service(5), systemd.exec(5)) that runs
// the broker with as few rights as it and its hooks need. Hooks may read the
// system and the user's home, run any program, JIT compilers among them, and use
// the network; they may write to the data directory and a /tmp of their own.
func Unit(o UnitOptions) (string, error) {
	for _, text := range []string{o.Executable, o.Config, o.User, o.Path, o.DataDir} {
		if strings.ContainsAny(text, "\n\r\x00") {
			return "", fmt.Errorf("%q cannot stand in a unit: it has a line break", text)
		}
	}
	state := "StateDirectory=agent-relay\nStateDirectoryMode=0700\n" + `Environment="XDG_DATA_HOME=/var/lib"`
	if o.DataDir != "" {
		state = "ReadWritePaths=" + unitQuote(o.DataDir, false)
	}
	return fmt.Sprintf(unitText, unitQuote(o.Executable, false), unitQuote(o.Config, true),
		unitEscape(o.User), unitQuote("PATH="+o.Path, false), state), nil
}

const unitText = `# Made by: agent-relay setup systemd
[Unit]
Description=agent-relay message broker
Documentation=man:systemd.exec(5)
After=network.target

[Service]
Type=notify
ExecStart=%s serve --log-format json --config %s
User=%s
Environment=%s
%s
RuntimeDirectory=agent-relay
RuntimeDirectoryMode=0700
UMask=0077
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=20
LimitNOFILE=65536

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`

// unitEscape keeps systemd from expanding specifiers (systemd.unit(5)).
func unitEscape(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// unitQuote quotes one word (systemd.syntax(7)). In an argument of a command
// variables are not to be expanded either.
func unitQuote(text string, argument bool) string {
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(unitEscape(text))
	if argument {
		text = strings.ReplaceAll(text, "$", "$$")
	}
	return `"` + text + `"`
}
