package connector

import (
	"bytes"
	"encoding/json"
	"testing"
)

// wantScan checks that the scanner knows of each beginning of a text whether
// it is an object, as encoding/json does.
func wantScan(t *testing.T, text []byte) {
	t.Helper()
	var s scanner
	for i := range text {
		s.feed(text[i : i+1])
		begun := text[:i+1]
		if want := isObject(begun) && json.Valid(begun); (s.state == complete) != want {
			t.Fatalf("%q: state %d, an object: %v", begun, s.state, want)
		}
		if s.state == impossible {
			return
		}
	}
}

// ends says how to complete each of these.
var begun = map[string]string{
	"": "{}", " \r\t": "{}", "{": "}", "{ ": "}", `{"`: `":1}`, `{"a`: `":1}`, `{"a\`: `n":1}`, `{"a\u`: `00eF":1}`, `{"a\u00`: `ef":1}`,
	`{"a"`: `:1}`, `{"a" `: `:1}`, `{"a":`: `1}`, `{"a":"`: `"}`, `{"a":t`: `rue}`, `{"a":fals`: `e}`, `{"a":nul`: `l}`, `{"a":-`: `1}`,
	`{"a":0`: `}`, `{"a":0.`: `0}`, `{"a":12.5`: `}`, `{"a":1e`: `1}`, `{"a":1E-`: `1}`, `{"a":1e+1`: `}`, `{"a":1 `: `}`,
	`{"a":1,`: `"b":2}`, `{"a":[`: `]}`, `{"a":[1`: `]}`, `{"a":[1,`: `2]}`, `{"a":[[],{}`: `]}`, `{"a":{"b":{}}`: `}`, `{}`: ` `,
}

func TestScanner(t *testing.T) {
	for beginning, end := range begun {
		var s scanner
		s.feed([]byte(beginning))
		if s.state == impossible {
			t.Errorf("%q is said to begin no object", beginning)
		}
		s.feed([]byte(end))
		if s.state != complete {
			t.Errorf("%q with %q is said to be no object, state %d", beginning, end, s.state)
		}
		wantScan(t, []byte(beginning+end))
	}
	for _, text := range []string{
		"[", "x", `"`, "1", "{,", "{1", "{a", `{"a",`, `{"a"}`, `{"a"1`, `{"a":}`, `{"a":,`, `{"a":]`, `{"a":+`, `{"a":.`, `{"a":01`, `{"a":-x`, `{"a":1.}`,
		`{"a":1.e`, `{"a":1.5.`, `{"a":1e}`, `{"a":1ee`, `{"a":1e+}`, `{"a":1e1.`, `{"a":tx`, `{"a":nulx`, `{"a":1,}`, `{"a":[}`, `{"a":[1}`, `{"a":[1,]`,
		`{"a":[]]`, `{"a":"` + "\n", `{"a":"\x`, `{"a":"\u00g`, `{}{`, `{}x`, `{"a":1 1`, `{"a":[1 1`, `{"a":{]`, "\xef\xbb\xbf{",
	} {
		var s scanner
		s.feed([]byte(text))
		if s.state != impossible {
			t.Errorf("%q is said to begin an object, state %d", text, s.state)
		}
		wantScan(t, []byte(text))
	}
}

func TestScannerDepth(t *testing.T) {
	for depth, want := range map[int]scanState{maxOpen: complete, maxOpen + 1: impossible} {
		text := append([]byte(`{"a":`), bytes.Repeat([]byte{'['}, depth-1)...)
		text = append(append(text, bytes.Repeat([]byte{']'}, depth-1)...), '}')
		var s scanner
		s.feed(text)
		if s.state != want || json.Valid(text) != (want == complete) {
			t.Errorf("at depth %d the state is %d, valid: %v", depth, s.state, json.Valid(text))
		}
	}
}

func FuzzScanner(f *testing.F) {
	for beginning, end := range begun {
		f.Add([]byte(beginning + end))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) <= 300 { // checking it takes the square of its length
			wantScan(t, text)
		}
	})
}
