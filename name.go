package agentrelay

import "strings"

// MaxNameLength is the longest agent name, in characters.
const MaxNameLength = 64

// MaxIDLength is the longest message id, in characters.
const MaxIDLength = 128

// Prefixes that no client may give a message id: cursors have the form of the
// first, and ids with the second are made by the broker itself.
const (
	cursorPrefix    = "cursor:"
	connectorPrefix = "connector:"
)

// ValidName reports whether s is an agent name: 1 to 64 of A-Z a-z 0-9 _ . -
// (PROTOCOL.md, "Names and ids"). Names are case-sensitive.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxNameLength {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '_' && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return true
}

// ValidID reports whether s can be a message id that a client chooses: 1 to
// 128 characters of the set in PROTOCOL.md, no empty, "." or ".." segment
// between slashes, no reserved prefix.
func ValidID(s string) bool {
	return WellFormedID(s) && !strings.HasPrefix(s, cursorPrefix) && !strings.HasPrefix(s, connectorPrefix)
}

// WellFormedID reports whether s can be a message id at all, one of the broker's own
// included.
func WellFormedID(s string) bool {
	if s == "" || len(s) > MaxIDLength {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("._~:@!$&'()*+,;=/-", rune(s[i])) {
			return false
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
