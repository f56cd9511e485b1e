package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestCredentials(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	if _, err := LoadCredentials("worker"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there are none: %v", err)
	}
	want := Credentials{URL: "http://127.0.0.1:1", Agent: "worker", Key: `s3cret "key"`}
	path := CredentialsFile(home, "worker")
	for range 2 { // the second replaces the first
		if err := want.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadCredentials("worker")
	if err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", got, got, got); strings.Contains(text, "s3cret") {
		t.Errorf("the key is printed: %s", text)
	}
	if o := got.Options(); o.URL != want.URL || o.Agent != want.Agent || o.Secret != want.Key {
		t.Errorf("options %+v", o)
	}
	if runtime.GOOS != "windows" {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := LoadCredentials("worker"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
				t.Errorf("mode %o: %v", mode, err)
			}
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path, CredentialsFile(home, "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCredentials("other"); err == nil || !strings.Contains(err.Error(), "credentials of worker") {
		t.Errorf("of another agent: %v", err)
	}
	for _, name := range []string{"", "../worker", "a/b"} {
		if _, err := LoadCredentials(name); err == nil || !strings.Contains(err.Error(), "is no agent name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := want.Save(filepath.Join(CredentialsFile(home, "other"), "x")); err == nil {
		t.Error("saved below a file")
	}
	if _, err := ReadCredentials(home); err == nil {
		t.Error("read a directory")
	}
}

// Without a config directory of its own, the home's is taken.
func TestCredentialsHome(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the user's config directory is elsewhere there")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	want := Credentials{Agent: "worker", Key: "k"}
	if err := want.Save(CredentialsFile(filepath.Join(home, ".config"), "worker")); err != nil {
		t.Fatal(err)
	}
	for _, relative := range []string{"", "relative"} {
		t.Setenv("XDG_CONFIG_HOME", relative)
		if got, err := LoadCredentials("worker"); err != nil || got != want {
			t.Errorf("got %v, %v", got, err)
		}
	}
	t.Setenv("HOME", "")
	if _, err := LoadCredentials("worker"); err == nil {
		t.Error("found without a home")
	}
}

func TestParseCredentials(t *testing.T) {
	for text, want := range map[string]string{
		"agent: a\nkey: k": "",
		"\ufeff# x\r\n\r\nurl: http://h:1 \r\nagent:  a\r\nkey: \"k\\u0022\"\r\n": "",
		"":                        "agent is missing",
		"agent: a":                "key is missing",
		"agent: a b\nkey: s3cret": "no agent name",
		"key: s3cret\nagent":      "line 2: write url, agent and key",
		"s3cret":                  "line 1: write url, agent and key",
		"secret: s3cret":          "line 1: write url, agent and key",
		"key: s3cret\nkey: x":     "line 2: key stands there already",
		"key: \"s3cret":           "line 1: the value of key is not well quoted",
		"key: \"s3cret\" x":       "line 1: the value of key is not well quoted",
	} {
		c, err := parseCredentials(text)
		switch {
		case want == "" && (err != nil || c.Agent != "a"):
			t.Errorf("%q: %v, %v", text, c, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxCredentials+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCredentials(large); err == nil || !strings.Contains(err.Error(), "over 65536 bytes") {
		t.Errorf("a large one: %v", err)
	}
}
