package hooks

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// maxTail is how many bytes of standard error are kept.
const maxTail = 1024

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	ring [maxTail]byte
	// written is how many bytes there were in all.
	written int
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) > maxTail {
		t.written += len(p) - maxTail
		p = p[len(p)-maxTail:]
	}
	at := t.written % maxTail
	copied := copy(t.ring[at:], p)
	copy(t.ring[:], p[copied:])
	t.written += len(p)
	return n, nil
}

// String is the end as text: valid UTF-8 of at most maxTail bytes, without
// space around it, that does not begin within a character.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written <= maxTail {
		return text(string(t.ring[:t.written]))
	}
	at := t.written % maxTail
	return text(fromBoundary(string(t.ring[at:]) + string(t.ring[:at])))
}

// text makes s fit to be shown. What is no UTF-8 becomes U+FFFD, which may
// take more bytes, so it is cut again.
func text(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > maxTail {
		s = fromBoundary(s[len(s)-maxTail:])
	}
	return strings.TrimSpace(s)
}

// fromBoundary cuts off the rest of a character that s begins within.
func fromBoundary(s string) string {
	for i := 0; i < utf8.UTFMax && i < len(s); i++ {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}
