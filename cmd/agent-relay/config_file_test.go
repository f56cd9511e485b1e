package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestConfigFile(t *testing.T) {
	env := variables("HOME", "/home/x")
	dir := t.TempDir()
	t.Run("missing", func(t *testing.T) {
		_, err := loadConfig(filepath.Join(dir, "none.yaml"), env)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "setup init") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a directory", func(t *testing.T) {
		_, err := loadConfig(dir, env)
		if err == nil || !strings.Contains(err.Error(), "is a directory") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("below a file", func(t *testing.T) {
		_, err := loadConfig(filepath.Join(writeTestConfig(t, secretLine), "x"), env)
		if err == nil {
			t.Error("no error")
		}
	})
	t.Run("large", func(t *testing.T) {
		_, err := loadTestConfig(t, secretLine+strings.Repeat("# comment\n", maxConfigBytes/10))
		if err == nil || !strings.Contains(err.Error(), "is over 1048576 bytes") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("nearly too large", func(t *testing.T) {
		content, n := []byte(secretLine+"agents:\n"), 0
		for ; len(content) < 100_000; n++ {
			content = fmt.Appendf(content, "  agent-%d: { allowed_targets: [planner] }\n", n)
		}
		content = append(content, bytes.Repeat([]byte("#"), maxConfigBytes-len(content))...)
		c, err := loadTestConfig(t, string(content))
		if err != nil || len(c.Agents) != n {
			t.Errorf("got %v", err)
		}
	})
}

func TestConfigModes(t *testing.T) {
	needModes(t)
	for mode, refused := range map[os.FileMode]bool{
		0o600: false, 0o400: false, 0o700: false, 0o711: false,
		0o640: true, 0o604: true, 0o644: true, 0o620: true, 0o602: true, 0o666: true,
	} {
		path := writeTestConfig(t, secretLine)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := loadConfig(path, variables("HOME", "/home/x"))
		if !refused && err != nil {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if want := fmt.Sprintf("its mode %04o lets others read or write it; run: chmod 600 %s", mode, path); refused && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("mode %04o: got %v, want %s", mode, err, want)
		}
	}
}

func TestConfigPath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths and variables are others there")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, flag string
		env        []string
		want       string
	}{
		{"flag", "/a/b.yaml", []string{"AGENT_RELAY_CONFIG", "/c", "HOME", "/h"}, "/a/b.yaml"},
		{"relative flag", "b.yaml", nil, here + "/b.yaml"},
		{"variable", "", []string{"AGENT_RELAY_CONFIG", "/c", "XDG_CONFIG_HOME", "/x"}, "/c"},
		{"XDG", "", []string{"XDG_CONFIG_HOME", "/x", "HOME", "/h"}, "/x/agent-relay/config.yaml"},
		{"relative XDG is ignored", "", []string{"XDG_CONFIG_HOME", "x", "HOME", "/h"}, "/h/.config/agent-relay/config.yaml"},
		{"home", "", []string{"HOME", "/h"}, "/h/.config/agent-relay/config.yaml"},
		{"nothing", "", nil, ""},
		{"relative home", "", []string{"HOME", "h"}, ""},
	} {
		got, err := configPath(test.flag, variables(test.env...))
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}

func TestConfigDataDir(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths and variables are others there")
	}
	path := writeTestConfig(t, secretLine)
	for _, test := range []struct {
		env  []string
		want string
	}{
		{[]string{"XDG_DATA_HOME", "/d", "HOME", "/h"}, "/d/agent-relay"},
		{[]string{"XDG_DATA_HOME", "d", "HOME", "/h"}, "/h/.local/share/agent-relay"},
		{[]string{"HOME", "/h"}, "/h/.local/share/agent-relay"},
	} {
		c, err := loadConfig(path, variables(test.env...))
		if err != nil || c.DataDir != test.want {
			t.Errorf("%v: got %v, want %s", test.env, err, test.want)
		}
	}
	if _, err := loadConfig(path, variables()); err == nil || !strings.Contains(err.Error(), "set data_dir in "+path) {
		t.Errorf("without a home: %v", err)
	}
	if _, err := loadConfig(writeTestConfig(t, secretLine+"storage: memory\n"), variables()); err != nil {
		t.Errorf("memory without a home: %v", err)
	}
}

func needModes(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no mode bits")
	}
}
