//go:build !windows

package setup

import (
	"io/fs"
	"strings"
)

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
