package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/client"
)

// readmeBlocks are the blocks of code in that language that a section of
// README.md has.
func readmeBlocks(t *testing.T, section, language string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for {
		_, rest, found := strings.Cut(text, "\n```"+language+"\n")
		if !found {
			break
		}
		block, rest, _ := strings.Cut(rest, "\n```\n")
		blocks, text = append(blocks, block), rest
	}
	if len(blocks) == 0 {
		t.Fatalf("README.md has no %s in %q", language, section)
	}
	return blocks
}

// readmeCommand is what a reader runs, in a directory of the test's, with the
// broker at r.
func (r *relay) readmeCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir,
		"AGENT_RELAY_CONFIG="+r.config, "AGENT_RELAY_URL="+r.url, "AGENT_RELAY_SECRET="+scriptSecret)
	return cmd
}

// TestReadmeShell runs what the README shows for the shell, in its order, and
// the backup's report twice.
func TestReadmeShell(t *testing.T) {
	for _, tool := range []string{"sh", "git", "df"} {
		if _, err := exec.LookPath(tool); err != nil {
			cannotRun(t, "README.md's shell cannot run here: %v", err)
		}
	}
	r := startRelay(t, relayOptions{})
	dir := t.TempDir()
	blocks := readmeBlocks(t, "In the shell", "sh")
	script := []string{
		"set -e", "git init -q .",
		"git -c user.name=ada -c user.email=ada@localhost commit -q --allow-empty -m 'Begin'",
	}
	for _, block := range blocks {
		script = append(script, block)
		if strings.Contains(block, "backup/") {
			script = append(script, block)
		}
	}
	cmd := r.readmeCommand(dir, "sh", "-c", strings.Join(script, "\n"))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got []string
	for line := range strings.Lines(stdout.String()) {
		for _, known := range []string{`"from":"cron"`, `the backup is done`, `ada: Begin`} {
			if strings.HasPrefix(line, "{") && strings.Contains(line, known) {
				got = append(got, known)
			}
		}
	}
	if diff := cmp.Diff([]string{`"from":"cron"`, `the backup is done`, `ada: Begin`}, got); diff != "" {
		t.Errorf("printed in the end (-want +got):\n%s\n%s", diff, &stdout)
	}

	// Without a broker, the job says so, and the hook is silent.
	r.signal(os.Interrupt)
	r.wait()
	for _, block := range blocks {
		if !strings.Contains(block, "backup/") && !strings.Contains(block, "git log") {
			continue
		}
		out, err := r.readmeCommand(dir, "sh", "-c", block).Output()
		if told := strings.TrimSpace(string(out)); err != nil || told != "" && told != "not told, run me again" {
			t.Errorf("%v: %q\n%s", err, out, block)
		}
	}
}

// TestReadmeGo builds the README's program and asks it something.
func TestReadmeGo(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		cannotRun(t, "README.md's Go cannot be built here: %v", err)
	}
	r := startRelay(t, relayOptions{})
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(readmeBlocks(t, "In Go", "go")[0]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "shout.exe")
	if out, err := exec.CommandContext(t.Context(), goTool, "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.registered("shout") // else who asks first finds nobody
	shout := r.readmeCommand(dir, program)
	var said strings.Builder
	shout.Stdout, shout.Stderr = &said, &said
	if err := shout.Start(); err != nil {
		t.Fatal(err)
	}
	answer, err := r.readmeCommand(dir, "agent-relay", "request", "--agent", "alpha", "shout", "hello").Output()
	if err != nil || strings.TrimSpace(string(answer)) != "HELLO" {
		t.Errorf("%q, %v", answer, err)
	}
	if err := shout.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := shout.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("%v: %s", err, &said)
	}
}

// TestReadmeOperating runs what the README shows for operators, but for what
// goes on until it is interrupted.
func TestReadmeOperating(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" {
		cannotRun(t, "README.md's shell cannot run here: %v", err)
	}
	r := startRelay(t, relayOptions{env: []string{"XDG_RUNTIME_DIR=", "RUNTIME_DIRECTORY="}})
	planner := r.registered("planner")
	dir := t.TempDir()
	for _, block := range readmeBlocks(t, "Operating a broker", "sh") {
		if strings.Contains(block, "agent-relay events") {
			continue
		}
		cmd := r.readmeCommand(dir, "sh", "-ec", block)
		// The secret in the environment would go before the credentials.
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir, "XDG_RUNTIME_DIR=", "RUNTIME_DIRECTORY=", "AGENT_RELAY_SECRET=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, block, out)
		}
	}
	page, err := planner.Poll(t.Context(), client.PollOptions{})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].From != "worker" {
		t.Errorf("the planner got %v, %v", page.Messages, err)
	}
}

// TestReadmeHook installs the hook that the README shows, and tries it where
// notify-send only notes what it is told.
func TestReadmeHook(t *testing.T) {
	for _, tool := range []string{"sh", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			cannotRun(t, "README.md's hook cannot run here: %v", err)
		}
	}
	home, bin := t.TempDir(), t.TempDir()
	told := filepath.Join(home, "told")
	notify := "#!/bin/sh\nprintf '%s|' \"$@\" >>" + told + "\n"
	if err := os.WriteFile(filepath.Join(bin, "notify-send"), []byte(notify), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", readmeBlocks(t, "Hooks", "sh")[0])
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "notify") {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err := os.ReadFile(told); err != nil || string(text) != "--|alpha to beta|hello|" {
		t.Errorf("the desktop was told %q, %v", text, err)
	}
}
