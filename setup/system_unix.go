//go:build !windows

package setup

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil // this file system has no such thing
	}
	return errors.Join(err, d.Close())
}

// openToOthers are the permissions among mask that others than the owner have.
func openToOthers(info fs.FileInfo, mask fs.FileMode) fs.FileMode {
	return info.Mode().Perm() & mask & 0o077
}

// ShellQuote writes s so that a POSIX shell reads it as one word.
func ShellQuote(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+:@%,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
