//go:build !windows

package socket

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// The least that a client does: it connects, writes a line, and reads once.
const (
	pythonClient = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\n")
sys.stdout.write(s.recv(65536).decode())
`
	nodeClient = `
const s = require("net").createConnection(process.argv[1])
s.once("data", d => { process.stdout.write(d); s.destroy() })
s.write(process.argv[2] + "\n")
`
)

// Other programs get the protocol's examples. Those that are missing are
// skipped; AGENT_RELAY_REQUIRE_PEERS=1 makes that a failure.
func TestPeers(t *testing.T) {
	for name, args := range map[string][]string{
		"python3": {"-c", pythonClient},
		"node":    {"-e", nodeClient},
		"nc":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			path := findPeer(t, name)
			h := newHookSocket(t, hooks.Options{})
			run := func(request string) string {
				t.Helper()
				cmd := exec.Command(path, append(args[:len(args):len(args)], h.Path(), request)...)
				if name == "nc" {
					cmd = exec.Command(path, "-U", h.Path())
					cmd.Stdin = strings.NewReader(request + "\n")
				}
				cmd.Stderr = os.Stderr
				answer, err := cmd.Output()
				if err != nil {
					t.Errorf("%s: %v", request, err)
				}
				return string(answer)
			}
			const request = `{"kind":"pre-message","payload":{"message":"hello"}}`
			if got := run(request); got != okAnswer {
				t.Errorf("with nothing installed: %q", got)
			}
			h.install(hook.PreMessage, "00-fail.sh", "echo boom >&2\nexit 7\n")
			if got, want := run(request), `{"ok":false,"errors":[{"script":"00-fail.sh","code":7,"stderr_tail":"boom"}]}`+"\n"; got != want {
				t.Errorf("with a script that fails: got %q, want %q", got, want)
			}
			if got, want := run("not-json"), `{"ok":false,"errors":[{"script":"-","reason":"invalid JSON request: `; !strings.HasPrefix(got, want) {
				t.Errorf("not-json: got %q, want %s…", got, want)
			}
			// Twenty scripts' standard error comes in one piece.
			for _, n := range strings.Split("abcdefghijklmnopqrst", "") {
				h.install(hook.CostAlert, n, "head -c 1024 /dev/zero | tr '\\0' x >&2\nexit 1\n")
			}
			if got := run(`{"kind":"cost-alert"}`); !strings.HasSuffix(got, `"}]}`+"\n") || len(got) < 20*1024 {
				t.Errorf("a long answer has %d bytes and ends in %.20q", len(got), got[max(0, len(got)-20):])
			}
		})
	}
}

// findPeer returns the path of a program that tests run as a client.
func findPeer(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil && name == "nc" {
		help, _ := exec.Command(path, "-h").CombinedOutput() // its status differs
		if !strings.Contains(string(help), "-U") && !strings.Contains(string(help), "U]") {
			err = errors.New("this nc has no Unix sockets; that of OpenBSD has")
		}
	}
	if err != nil {
		if os.Getenv("AGENT_RELAY_REQUIRE_PEERS") == "1" {
			t.Fatalf("AGENT_RELAY_REQUIRE_PEERS is set, but a client cannot run: %v", err)
		}
		t.Skipf("a client cannot run here: %v", err)
	}
	return path
}
