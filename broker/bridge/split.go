package bridge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agent-relay/agent-relay/broker/connector"
)

// split cuts a text into parts that are not longer than the platform takes: at
// the end of a line, or else of a word, or else anywhere between characters. Space
// at a cut goes, but for the indentation of a line; so do parts that would be
// blank. A text that fits is left as it is.
func split(text string, d connector.Descriptor) []string {
	if d.Length(text) <= d.MaxMessageLength {
		return []string{text}
	}
	var parts []string
	for text != "" {
		end := fitting(text, d)
		part, rest := text[:end], text[end:]
		if rest != "" {
			part, rest = cut(text, end)
		}
		if part = strings.TrimRightFunc(part, unicode.IsSpace); part != "" {
			parts = append(parts, part)
		}
		text = rest
	}
	return parts
}

// fitting is the size in bytes of the longest beginning of a text that the
// platform takes. It is at least one character.
func fitting(text string, d connector.Descriptor) int {
	left := d.MaxMessageLength
	for at, r := range text {
		if left -= d.Length(string(r)); left < 0 && at > 0 {
			return at
		}
	}
	return len(text)
}

// cut cuts a text at the last good place up to end. A line's end in the first
// half would make parts short for no reason; the end of a word then is better.
func cut(text string, end int) (part, rest string) {
	// A line or a word may end right where the part is full.
	window := text[:end]
	if r, _ := utf8.DecodeRuneInString(text[end:]); blank(r) && !strings.HasSuffix(strings.TrimRightFunc(window, blank), "\n") {
		return window, strings.TrimLeftFunc(text[end:], blank)
	} else if r == '\n' || r == '\r' {
		return window, strings.TrimLeft(text[end:], "\r\n")
	}
	line, word := strings.LastIndexByte(window, '\n'), strings.LastIndexFunc(window, blank)
	switch {
	case line >= 0 && (line >= end/2 || word < end/2):
		return window[:line], strings.TrimLeft(text[line:], "\r\n")
	case word > 0:
		return window[:word], strings.TrimLeftFunc(text[word:], blank)
	}
	at := whole(text, end)
	return text[:at], text[at:]
}

// blank is space within a line.
func blank(r rune) bool { return r != '\n' && r != '\r' && unicode.IsSpace(r) }

// whole moves the end of a part before a character that is written as several
// code points, unless there is nothing else before it.
func whole(text string, end int) int {
	at := end
	for at > 0 && end-at < maxCluster {
		next, _ := utf8.DecodeRuneInString(text[at:])
		last, size := utf8.DecodeLastRuneInString(text[:at])
		if !joins(next) && last != joiner {
			return at
		}
		at -= size
	}
	return end
}

const (
	joiner = '\u200d'
	// maxCluster bounds the bytes of such a character that is kept whole.
	maxCluster = 64
)

// joins reports whether a code point belongs to the one before it.
func joins(r rune) bool {
	return r == joiner || unicode.Is(unicode.M, r) || 0x1f3fb <= r && r <= 0x1f3ff // skin tones
}
