package agentrelay

import (
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	for _, s := range []string{
		"a", "alpha", "team-lead", "team_lead", "A.b-c_9", ".", "..", "-", "0",
		strings.Repeat("n", 64), "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789_.-",
	} {
		if !ValidName(s) {
			t.Errorf("%q is no name", s)
		}
	}
	for _, s := range []string{
		"", strings.Repeat("n", 65), "a b", " a", "a ", "a\n", "\x00", "a/b", "a:b", "a@b", "a+b", "müller", "ａ", "a\xff", "a,b", "a*",
	} {
		if ValidName(s) {
			t.Errorf("%q is a name", s)
		}
	}
}

func TestValidID(t *testing.T) {
	for _, s := range []string{
		"a", "0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e", "a/b", "a/b/c", ".a", "a.", "...", "a/...", "a..b", "~", "a:b", "urn:x:1",
		"._~:@!$&'()*+,;=-", "a+b", "cursor", "cursor/1", "xcursor:1", "Cursor:1", "connector", "CONNECTOR:x",
		strings.Repeat("i", 128), "ack", "a/ack",
	} {
		if !ValidID(s) {
			t.Errorf("%q is no id", s)
		}
	}
	for _, s := range []string{
		"", strings.Repeat("i", 129), "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/./b", "../a", "a/..", "a/../b",
		"cursor:", "cursor:x:1", "connector:", "connector:x", "a b", "a%2fb", "a?b", "a#b", `a"b`, `a\b`, "a<b", "a\n", "ä", "a\x00", "[a]", "{a}", "a|b", "a^b", "a`b",
	} {
		if ValidID(s) {
			t.Errorf("%q is an id", s)
		}
	}
}
