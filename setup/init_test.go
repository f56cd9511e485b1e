package setup_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/agent-relay/agent-relay/setup"
)

func initConfig(t *testing.T, path string, force bool) (created bool, content string) {
	t.Helper()
	created, err := setup.Init(setup.InitOptions{Path: path, Force: force})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return created, string(text)
}

func checkMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want && runtime.GOOS != "windows" {
		t.Errorf("%s has mode %04o, want %04o", path, got, want)
	}
}

// onlyFile fails if dir holds anything beside name.
func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s holds %v, want %s alone", dir, entries, name)
	}
}

func TestInit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "agent-relay", "config.yaml")
	random := bytes.Repeat([]byte{0xa5}, 32)
	created, err := setup.Init(setup.InitOptions{Path: path, Random: bytes.NewReader(random)})
	if err != nil || !created {
		t.Fatalf("got %v, %v", created, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nsecret: \"" + hex.EncodeToString(random) + "\"\n"; !strings.Contains(string(text), want) {
		t.Errorf("the config has no line %s:\n%s", want, text)
	}
	checkMode(t, path, 0o600)
	checkMode(t, filepath.Dir(path), 0o700)
	checkMode(t, filepath.Dir(filepath.Dir(path)), 0o700)
	onlyFile(t, filepath.Dir(path), "config.yaml")
}

func TestInitKeeps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	created, first := initConfig(t, path, false)
	if !created {
		t.Error("not created at first")
	}
	created, second := initConfig(t, path, false)
	if created || second != first {
		t.Errorf("the second time: created %v", created)
	}
	created, third := initConfig(t, path, true)
	if !created || third == first {
		t.Errorf("forced: created %v, changed %v", created, third != first)
	}
	checkMode(t, path, 0o600)
	onlyFile(t, dir, "config.yaml")
}

// A config that is not one of ours is kept like any other, whatever its mode.
func TestInitKeepsWhatItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("{{{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if created, text := initConfig(t, path, false); created || text != "{{{" {
		t.Errorf("created %v: %s", created, text)
	}
	initConfig(t, path, true)
	checkMode(t, path, 0o600)
}

func TestInitFollowsLink(t *testing.T) {
	dir := t.TempDir()
	link, path := filepath.Join(dir, "link.yaml"), filepath.Join(dir, "real", "config.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if _, err := setup.Init(setup.InitOptions{Path: link}); err == nil {
		t.Error("a link to nowhere: no error")
	}
	_, first := initConfig(t, path, false)
	if created, text := initConfig(t, link, false); created || text != first {
		t.Errorf("kept: created %v", created)
	}
	if created, text := initConfig(t, link, true); !created || text == first {
		t.Errorf("forced: created %v", created)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	onlyFile(t, filepath.Dir(path), "config.yaml")
}

func TestInitErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no entropy")
	for name, o := range map[string]setup.InitOptions{
		"a directory is there":    {Path: dir},
		"a directory, forced":     {Path: dir, Force: true},
		"below a file":            {Path: filepath.Join(file, "config.yaml")},
		"no random bytes":         {Path: filepath.Join(dir, "a", "config.yaml"), Random: iotest.ErrReader(broken)},
		"too few random bytes":    {Path: filepath.Join(dir, "a", "config.yaml"), Random: strings.NewReader("short")},
		"a name no file can have": {Path: filepath.Join(dir, strings.Repeat("x", 300))},
	} {
		created, err := setup.Init(o)
		if err == nil || created {
			t.Errorf("%s: created %v, no error", name, created)
		}
	}
	onlyFile(t, dir, "file")
}

// Of several at once one makes the config, and the others keep it.
func TestInitAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	const callers = 16
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		secrets []string
	)
	for range callers {
		wait.Go(func() {
			created, err := setup.Init(setup.InitOptions{Path: path})
			if err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(path); err != nil {
				t.Error(err)
			} else if created {
				mu.Lock()
				secrets = append(secrets, string(text))
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(secrets) != 1 || secrets[0] != string(text) {
		t.Errorf("%d of %d made a config", len(secrets), callers)
	}
	onlyFile(t, filepath.Dir(path), "config.yaml")
}

func TestShellQuote(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("other shells, other rules")
	}
	for s, want := range map[string]string{
		"/a/b-c_d.yaml": "/a/b-c_d.yaml", "": "''", "a b": "'a b'", "$x": "'$x'", "it's": `'it'\''s'`, "~": "'~'", "a;b": "'a;b'", "é": "'é'",
	} {
		if got := setup.ShellQuote(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}
