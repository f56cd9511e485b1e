package main

import (
	"errors"
	"os"
	"path/filepath"
)

// configHome is the user's roaming application data, unless XDG_CONFIG_HOME
// names another directory.
func configHome(env func(string) string) (string, error) {
	return firstDir(env, "XDG_CONFIG_HOME", "AppData")
}

// dataHome is the user's local application data, unless XDG_DATA_HOME names
// another directory.
func dataHome(env func(string) string) (string, error) {
	return firstDir(env, "XDG_DATA_HOME", "LocalAppData")
}

// stateHome is the user's local application data, unless XDG_STATE_HOME names
// another directory.
func stateHome(env func(string) string) (string, error) {
	return firstDir(env, "XDG_STATE_HOME", "LocalAppData")
}

func firstDir(env func(string) string, variables ...string) (string, error) {
	for _, v := range variables {
		if dir := env(v); filepath.IsAbs(dir) {
			return dir, nil
		}
	}
	return "", errors.New("set " + variables[len(variables)-1] + " to an absolute path")
}

// checkPrivate accepts every file: Windows has no mode bits, and a profile's
// directories are closed to other users by their access lists.
func checkPrivate(string, os.FileInfo) error { return nil }
