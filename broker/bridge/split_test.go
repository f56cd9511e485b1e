package bridge

import (
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agent-relay/agent-relay/broker/connector"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		text string
		unit connector.LenUnit
		max  int
		want []string
	}{
		{"fits as  it is \n", connector.Chars, 16, []string{"fits as  it is \n"}},
		{"one two three", connector.Chars, 8, []string{"one two", "three"}},
		{"one two three", connector.Chars, 7, []string{"one two", "three"}},
		{"line one\nline two\n    code", connector.Chars, 10, []string{"line one", "line two", "    code"}},
		{"line one\r\nline two", connector.Chars, 8, []string{"line one", "line two"}},
		{"line one\r\nline two", connector.Chars, 10, []string{"line one", "line two"}},
		{"a\nlong words follow", connector.Chars, 14, []string{"a\nlong words", "follow"}},
		{"unbroken", connector.Chars, 3, []string{"unb", "rok", "en"}},
		{"x\n\n\n\n\n\n\n\ny", connector.Chars, 4, []string{"x", "y"}},
		{"äöü", connector.UTF16, 2, []string{"äö", "ü"}},
		{"😀😀😀", connector.UTF16, 4, []string{"😀😀", "😀"}},
		{"😀😀😀", connector.UTF16, 5, []string{"😀😀", "😀"}},
		{"😀😀", connector.UTF16, 1, []string{"😀", "😀"}}, // there is no less than a character
		{"😀😀😀", connector.Chars, 2, []string{"😀😀", "😀"}},
		{"ae\u0301e\u0301", connector.Chars, 4, []string{"ae\u0301", "e\u0301"}},
		{"a👩\u200d👧b", connector.Chars, 3, []string{"a", "👩\u200d👧", "b"}},
		{"👍🏽👍🏽", connector.Chars, 3, []string{"👍🏽", "👍🏽"}},
	} {
		got := split(test.text, connector.Descriptor{MaxMessageLength: test.max, LenUnit: test.unit})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q by %d %s (-want +got):\n%s", test.text, test.max, test.unit, diff)
		}
	}
}

// Whatever the text, parts fit, none is blank, and nothing but space is lost.
func TestSplitKeepsAll(t *testing.T) {
	solid := func(s string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, s)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab \n\r\té😀\u0301\u200d"))).Draw(t, "text")
		d := connector.Descriptor{
			MaxMessageLength: rapid.IntRange(2, 12).Draw(t, "max"),
			LenUnit:          rapid.SampledFrom([]connector.LenUnit{connector.Chars, connector.UTF16}).Draw(t, "unit"),
		}
		parts := split(text, d)
		for _, part := range parts {
			if d.Length(part) > d.MaxMessageLength || len(parts) > 1 && strings.TrimRightFunc(part, unicode.IsSpace) != part || len(parts) > 1 && part == "" {
				t.Errorf("a part is %q", part)
			}
		}
		if solid(strings.Join(parts, "")) != solid(text) {
			t.Errorf("the parts are %q", parts)
		}
	})
}
