package agentrelay

import (
	"math"
	"strings"
	"testing"
)

func TestCursorRoundTrip(t *testing.T) {
	tag := CursorTag("epoch", "alpha")
	for _, position := range []int64{0, 1, 42, math.MaxInt64} {
		want := Cursor{Tag: tag, Position: position}
		got, ok := ParseCursor(want.String())
		if !ok || got != want {
			t.Errorf("%v reads as %v, %v", want, got, ok)
		}
	}
	if got := (Cursor{Tag: "ab", Position: 12}).String(); got != "cursor:ab:12" {
		t.Errorf("cursor text %q", got)
	}
}

func TestCursorTag(t *testing.T) {
	tag := CursorTag("epoch", "alpha")
	if tag != CursorTag("epoch", "alpha") {
		t.Error("the tag changes from call to call")
	}
	if strings.Trim(tag, "0123456789abcdef") != "" || tag == "" {
		t.Errorf("the tag %q has characters that a query would have to escape", tag)
	}
	for _, other := range []string{
		CursorTag("epoch", "beta"), CursorTag("epoch2", "alpha"), CursorTag("epoch", "Alpha"),
	} {
		if other == tag {
			t.Error("another store or agent has the same tag")
		}
	}
}

func TestParseCursorRefuses(t *testing.T) {
	for _, text := range []string{
		"", "cursor", "cursor:", "cursor::", "cursor::1", "cursor:ab", "cursor:ab:", "cursor:ab:-1", "cursor:ab:+1", "cursor:ab:01", "cursor:ab: 1",
		"cursor:ab:1 ", "cursor:ab:1:2", "cursor:ab:1.0", "cursor:ab:1e3", "cursor:ab:0x1", "cursor:ab:9223372036854775808", "cursor:ab:١",
		"Cursor:ab:1", " cursor:ab:1", "xcursor:ab:1", "ab:1", "1", "0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e",
	} {
		if c, ok := ParseCursor(text); ok {
			t.Errorf("%q reads as %v", text, c)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	for _, text := range []string{
		"cursor:ab:12", "cursor:0123456789ab:0", "cursor:ab:9223372036854775807", "cursor:ab:9223372036854775808",
		"cursor:ab:01", "cursor:ab:-1", "cursor::1", "cursor:ab:1:2", "cursor:a b:1", "cursor:", "", "a/b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := ParseCursor(text)
		if !ok {
			return
		}
		if c.String() != text || c.Position < 0 || c.Tag == "" || strings.Contains(c.Tag, ":") {
			t.Fatalf("%q reads as %#v", text, c)
		}
		if ValidID(text) {
			t.Fatalf("%q is a cursor and a message id", text)
		}
	})
}
