//go:build !windows

package socket

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// BenchmarkRoundTrip measures what a client waits for: connect, write, read.
// hook=trivial runs the program true; exec=trivial is that program's own part,
// started and waited for with nothing around it.
func BenchmarkRoundTrip(b *testing.B) {
	program, err := exec.LookPath("true")
	if err != nil {
		b.Skip(err)
	}
	request := []byte(`{"kind":"pre-message","payload":{"message":"hello, how are you today?"}}` + "\n")
	for _, installed := range []bool{false, true} {
		name := "hook=none"
		if installed {
			name = "hook=trivial"
		}
		b.Run(name, func(b *testing.B) {
			h := newHookSocket(b, hooks.Options{})
			h.install(hook.PreMessage, "1.disabled", "")
			if installed {
				if err := os.Symlink(program, filepath.Join(h.dir, "pre-message", "1")); err != nil {
					b.Fatal(err)
				}
			}
			answer := make([]byte, 64<<10)
			for b.Loop() {
				conn, err := net.Dial("unix", h.Path())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				n, err := conn.Read(answer)
				if err != nil || !bytes.Equal(answer[:n], []byte(okAnswer)) {
					b.Fatalf("%s, %v", answer[:n], err)
				}
				_ = conn.Close()
			}
		})
	}
	b.Run("exec=trivial", func(b *testing.B) {
		for b.Loop() {
			p, err := os.StartProcess(program, []string{program}, &os.ProcAttr{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
