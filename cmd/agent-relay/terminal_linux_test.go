package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal: what is done to the first file is seen by who
// has the second one (pty(7)).
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return control, terminal
}

// A broker that was started on a terminal ends with it; a signal alone has it
// read its config again.
func TestTerminalGone(t *testing.T) {
	control, terminal := openTerminal(t)
	defer control.Close()
	r := &relay{t: t, config: relayConfig(t, "hooks: { socket: off }", "control_socket: off"), log: &logBuffer{}, ended: make(chan struct{})}
	r.command = exec.Command("agent-relay", "serve", "--log-format", "text", "--config", r.config)
	r.command.Stdin, r.command.Stderr = terminal, r.log
	r.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.command.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.command.Process.Kill() // it may have ended
		<-r.ended
	})
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	r.waitLog("listening")
	r.signal(syscall.SIGHUP)
	r.waitLog("config reloaded")
	if err := control.Close(); err != nil {
		t.Fatal(err)
	}
	if status, _ := r.wait(); status != 0 {
		t.Errorf("exit status %d; the log:\n%s", status, r.log)
	}
}
