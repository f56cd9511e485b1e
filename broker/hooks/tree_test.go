//go:build !windows

package hooks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// failing is a script that must not run.
const failing = "#!/bin/sh\nexit 9\n"

func (f *fixture) chmod(path string, mode uint32) {
	f.t.Helper()
	// os.Chmod has modes of its own.
	if err := syscall.Chmod(path, mode); err != nil {
		f.t.Fatal(err)
	}
}

func TestRefusedScripts(t *testing.T) {
	for mode, why := range map[uint32]string{
		0o720:  "it is writable by group or others (mode 0720); run chmod go-w on it",
		0o702:  "it is writable by group or others (mode 0702); run chmod go-w on it",
		0o777:  "it is writable by group or others (mode 0777); run chmod go-w on it",
		0o4755: "it is setuid or setgid (mode 4755); run chmod ug-s on it",
		0o2755: "it is setuid or setgid (mode 2755); run chmod ug-s on it",
	} {
		f := newFixture(t, Options{})
		f.write("1-bad", failing, 0o700)
		f.chmod(f.path("1-bad"), mode)
		// Alone, and with one that runs; and by way of a link.
		f.want(`{"ok":false,"errors":[{"script":"1-bad","reason":"refused: ` + why + `"}]}`)
		f.install("0-order", "2-order")
		if err := os.Symlink("1-bad", f.path("3-link")); err != nil {
			t.Fatal(err)
		}
		f.want(`{"ok":false,"errors":[{"script":"1-bad","reason":"refused: ` + why + `"},{"script":"3-link","reason":"refused: ` + why + `"}]}`)
		if got := f.read("order.out"); got != "0-order\n2-order\n" {
			t.Errorf("mode %04o: %q ran", mode, got)
		}
		if !f.Installed(hook.PreMessage) {
			t.Error("a script that fails the event is not installed")
		}
	}
}

func TestRefusedDirectories(t *testing.T) {
	f := newFixture(t, Options{})
	for _, dir := range []string{f.dir, f.path("")} {
		dir = filepath.Clean(dir)
		f.chmod(dir, 0o770)
		// What holds nothing to run refuses nothing, and yet it is shown.
		f.want(`{"ok":true,"errors":[]}`)
		if got := f.List().Kinds[0].Problem; !strings.HasPrefix(got, "refused: the directory "+dir+" is writable") {
			t.Errorf("listed problem: %q", got)
		}
		f.install("1-order")
		why := fmt.Sprintf("refused: the directory %s is writable by group or others (mode 0770); run chmod go-w on it", dir)
		f.want(`{"ok":false,"errors":[{"script":"-","reason":"` + why + `"}]}`)
		if !f.Installed(hook.PreMessage) {
			t.Error("a directory that fails the event has nothing installed")
		}
		f.chmod(dir, 0o1755) // sticky is fine
		f.want(`{"ok":true,"errors":[]}`)
		if err := os.Remove(f.path("1-order")); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.read("order.out"); got != "1-order\n1-order\n" {
		t.Errorf("%q ran, want one run for each directory", got)
	}
}

func TestForeignOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	f := newFixture(t, Options{})
	f.write("1-bad", failing, 0o700)
	const why = "belongs to user 12345, who is neither root nor the relay's user; make it yours with chown"
	for path, answer := range map[string]string{
		f.path("1-bad"): `{"script":"1-bad","reason":"refused: it ` + why + `"}`,
		f.path(""):      `{"script":"-","reason":"refused: the directory ` + filepath.Clean(f.path("")) + ` ` + why + `"}`,
		f.dir:           `{"script":"-","reason":"refused: the directory ` + f.dir + ` ` + why + `"}`,
	} {
		if err := os.Chown(path, 12345, 0); err != nil {
			t.Fatal(err)
		}
		f.want(`{"ok":false,"errors":[` + answer + `]}`)
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	f.want(`{"ok":false,"errors":[{"script":"1-bad","code":9}]}`)
}

// What counts is what a file is when it is its turn.
func TestCheckedAtEachRun(t *testing.T) {
	const writable = "writable by group or others (mode 0777); run chmod go-w on it"
	for change, answer := range map[string]string{
		"chmod 777 2-bad":                    `{"ok":false,"errors":[{"script":"2-bad","reason":"refused: it is ` + writable + `"}]}`,
		"chmod 777 .":                        `{"ok":false,"errors":[{"script":"2-bad","reason":"refused: the directory DIR is ` + writable + `"}]}`,
		"chmod 600 2-bad":                    `{"ok":true,"errors":[]}`,
		"2-bad":                              `{"ok":true,"errors":[]}`,
		"chmod 777 2-bad\nchmod 700 2-bad\n": `{"ok":false,"errors":[{"script":"2-bad","code":9}]}`,
	} {
		f := newFixture(t, Options{})
		f.install("1-meddle")
		f.write("1-meddle.arg", change, 0o600)
		f.write("2-bad", failing, 0o700)
		r := f.want(strings.ReplaceAll(answer, "DIR", filepath.Clean(f.path(""))))
		if len(r.Runs) == 0 || r.Runs[0].Script != "1-meddle" || r.Runs[0].Code != 0 {
			t.Errorf("%s: %+v", change, r)
		}
	}
}

// The directory that was examined is the one that scripts are run from,
// wherever its path leads meanwhile.
func TestDirectoryIsSwapped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("an open directory cannot be named here")
	}
	f := newFixture(t, Options{})
	g := f.gated(hook.PreMessage, "1-gate")
	f.write("2-ours", "#!/bin/sh\nexit 5\n", 0o700)
	ended := make(chan hook.Result, 1)
	go func() { ended <- f.fire("") }()
	g.await(1)
	if err := os.Rename(f.path(""), f.path("")+".ours"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("2-ours", failing, 0o700)
	g.open()
	if diff := cmp.Diff([]hook.Failure{{Script: "2-ours", Code: 5}}, (<-ended).Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t, Options{})
	for _, name := range []string{".hidden", "backup~", "old.disabled", "no-bit", "fine.sh", "bad.sh", "exec-only"} {
		f.write(name, failing, 0o755)
	}
	f.chmod(f.path("no-bit"), 0o644)
	f.chmod(f.path("bad.sh"), 0o775)
	f.chmod(f.path("exec-only"), 0o101)
	for name, to := range map[string]string{"link": "fine.sh", "nowhere": "none", "loop": "loop"} {
		if err := os.Symlink(to, f.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{f.path("directory"), filepath.Join(f.dir, "pre-mesage"), filepath.Join(f.dir, ".git")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(f.path("fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.dir, "cost-alert")); err != nil {
		t.Fatal(err)
	}
	want := Listing{Dir: f.dir, Unknown: []string{"pre-mesage"}}
	for _, k := range hook.Kinds() {
		want.Kinds = append(want.Kinds, KindListing{Kind: k, Dir: filepath.Join(f.dir, string(k))})
	}
	want.Kinds[0].Scripts = []Script{
		{".hidden", Skipped, "its name begins with a dot"},
		{"backup~", Skipped, "its name ends in ~"},
		{"bad.sh", Refused, "it is writable by group or others (mode 0775); run chmod go-w on it"},
		{"directory", Skipped, "it is not a regular file"},
		{"exec-only", Runs, ""},
		{"fifo", Skipped, "it is not a regular file"},
		{"fine.sh", Runs, ""},
		{"link", Runs, ""},
		{"loop", Refused, "it cannot be examined: too many levels of symbolic links"},
		{"no-bit", Skipped, "it has no execute bit"},
		{"nowhere", Skipped, "it is a symbolic link to nothing"},
		{"old.disabled", Skipped, "its name ends in .disabled"},
	}
	if diff := cmp.Diff(want, f.List()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Quiet skips are quiet.
	for _, name := range []string{"bad.sh", "exec-only", "fine.sh", "link", "loop"} {
		if err := os.Remove(f.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	f.want(`{"ok":true,"errors":[]}`)
}

// A directory that cannot be read is not the same as one with nothing in it.
func TestUnreadableDirectories(t *testing.T) {
	f := newFixture(t, Options{})
	for _, dir := range []string{filepath.Clean(f.path("")), f.dir} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for problem, make := range map[string]func() error{
			"not a directory":                   func() error { return os.WriteFile(dir, nil, 0o700) },
			"too many levels of symbolic links": func() error { return os.Symlink(dir, dir) },
		} {
			if err := make(); err != nil {
				t.Fatal(err)
			}
			reason := "cannot read the hooks directory " + dir + ": " + problem
			f.want(`{"ok":false,"errors":[{"script":"-","reason":"` + reason + `"}]}`)
			if got := f.List().Kinds[0].Problem; got != reason {
				t.Errorf("listed problem: %q", got)
			}
			if f.installed.kinds = nil; !f.Installed(hook.PreMessage) {
				t.Error("a directory that fails the event has nothing installed")
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		f.want(`{"ok":true,"errors":[]}`)
	}
}

// asNobody runs a test again as a user to whom something can be forbidden, which
// root is not, and reports whether that was done.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hooks.test")
	if err := errors.Join(os.WriteFile(path, program, 0o755), os.Chmod(dir, 0o755), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return true
}

func TestForbiddenDirectory(t *testing.T) {
	if asNobody(t) {
		return
	}
	f := newFixture(t, Options{})
	f.chmod(f.path(""), 0)
	defer f.chmod(f.path(""), 0o700)
	f.want(`{"ok":false,"errors":[{"script":"-","reason":"cannot read the hooks directory ` + filepath.Clean(f.path("")) + `: permission denied"}]}`)
}
