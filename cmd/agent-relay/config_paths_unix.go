//go:build !windows

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agent-relay/agent-relay/setup"
)

// configHome is the user's config directory (XDG Base Directory
// Specification).
func configHome(env func(string) string) (string, error) {
	return xdgDir(env, "XDG_CONFIG_HOME", ".config")
}

// dataHome is the user's data directory (XDG Base Directory Specification).
func dataHome(env func(string) string) (string, error) {
	return xdgDir(env, "XDG_DATA_HOME", ".local/share")
}

// stateHome is the user's state directory (XDG Base Directory Specification).
func stateHome(env func(string) string) (string, error) {
	return xdgDir(env, "XDG_STATE_HOME", ".local/state")
}

// xdgDir follows the specification in ignoring a variable that is not an
// absolute path.
func xdgDir(env func(string) string, variable, fallback string) (string, error) {
	if dir := env(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	home := env("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("set HOME or " + variable + " to an absolute path")
	}
	return filepath.Join(home, fallback), nil
}

// checkPrivate refuses a file that others than its owner may read or write.
func checkPrivate(path string, info os.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o066 != 0 {
		return fmt.Errorf("%s holds the secret, but its mode %04o lets others read or write it; run: chmod 600 %s", path, mode, setup.ShellQuote(path))
	}
	return nil
}
