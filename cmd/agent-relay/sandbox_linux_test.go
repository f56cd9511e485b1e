package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sandboxed is a program of the tests: it runs the command that its arguments
// are, which can connect to nothing, as in the sandboxes that agents run
// programs in.
func sandboxed() {
	err := forbidConnect()
	if err == nil {
		var path string
		if path, err = exec.LookPath(os.Args[1]); err == nil {
			err = syscall.Exec(path, os.Args[1:], os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, "sandboxed:", err)
	os.Exit(notSandboxed)
}

// notSandboxed is the exit status of sandboxed where the system lacks what it
// needs.
const notSandboxed = 125

// forbidConnect makes the system call connect fail with EPERM (seccomp(2)).
func forbidConnect() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the system call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_CONNECT},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// A sandbox is named, whether or not a broker runs.
func TestSandboxed(t *testing.T) {
	r := startRelay(t, relayOptions{})
	for name, url := range map[string]string{"running": r.url, "not running": "http://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sandboxed", "agent-relay", "peers", "--agent", "alpha", "--url", url, "--config", r.config)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("%v: %s", err, out)
			}
			if exit.ExitCode() == notSandboxed {
				cannotRun(t, "no sandbox can be made here: %s", out)
			}
			if exit.ExitCode() != exitUnreachable || !strings.Contains(string(out), "may not connect to "+url+": a sandbox or a firewall forbids it") ||
				strings.Contains(string(out), "no broker answers") {
				t.Errorf("exit status %d: %s", exit.ExitCode(), out)
			}
		})
	}
}

// The broker listens at 127.0.0.1, and localhost is ::1 first.
func TestLocalhostIsIPv6First(t *testing.T) {
	r := startRelay(t, relayOptions{})
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("::1 localhost\n127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// In a mount namespace of its own, where /etc/hosts is that file.
	inNamespace := func(args ...string) *exec.Cmd {
		script := `mount --bind "$0" /etc/hosts && exec "$@"`
		return exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, hosts}, args...)...)
	}
	if out, err := inNamespace("true").CombinedOutput(); err != nil {
		cannotRun(t, "no mount namespace can be made here: %v: %s", err, out)
	}
	url := strings.Replace(r.url, "127.0.0.1", "localhost", 1)
	out, err := inNamespace("agent-relay", "register", "--agent", "alpha", "--url", url, "--config", r.config).CombinedOutput()
	if want := "registered alpha at " + url + "\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}
