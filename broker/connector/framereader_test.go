package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// collect reads messages, and returns the frames, a bad one as its error.
func collect(messages ...string) (got []string) {
	var r FrameReader
	for _, m := range messages {
		r.Feed([]byte(m), true, func(frame []byte, err error) {
			if err != nil {
				frame = []byte(err.Error())
			}
			got = append(got, string(frame))
		})
	}
	return got
}

// object of some size.
func sized(size int) string {
	return `{"a":"` + strings.Repeat("x", size-8) + `"}`
}

func TestFrameReader(t *testing.T) {
	bad, off, large, encoding := errNoFrame.Error(), errUnfinished.Error(), errTooLarge.Error(), errNoUTF8.Error()
	full := sized(MaxFrame)
	for name, c := range map[string]struct{ messages, want []string }{
		"one a message":                {[]string{"{\"a\":1}\n", "{}\n"}, []string{`{"a":1}`, `{}`}},
		"no newline":                   {[]string{`{"a":1}`, `{}`}, []string{`{"a":1}`, `{}`}},
		"newline in its own message":   {[]string{`{"a":1}`, "\n", `{}`, "\r\n"}, []string{`{"a":1}`, `{}`}},
		"several in a message":         {[]string{"{}\n{\"a\":2}\n{\"a\":3}"}, []string{`{}`, `{"a":2}`, `{"a":3}`}},
		"CRLF and blank lines":         {[]string{"\r\n \t\n{}\r\n\n  {\"a\":2} \r\n", "", " "}, []string{`{}`, `{"a":2}`}},
		"split":                        {[]string{`{"a`, `":`, "", `{"b":1}`, "}\n{", "}"}, []string{`{"a":{"b":1}}`, `{}`}},
		"split within a character":     {[]string{"{\"a\":\"\xf0\x9f", "\x94\x8c\"}\n"}, []string{`{"a":"🔌"}`}},
		"a bad line":                   {[]string{"{}\nnonsense\n{\"a\":1}\n"}, []string{`{}`, bad, `{"a":1}`}},
		"a bad message":                {[]string{`{}`, `nonsense`, `{"a":1}`}, []string{`{}`, bad, `{"a":1}`}},
		"no object":                    {[]string{"[1]\n1\n\"{}\"\nnull\n"}, []string{bad, bad, bad, bad}},
		"two on a line":                {[]string{"{}{}\n{\"a\":1}\n"}, []string{bad, `{"a":1}`}},
		"unfinished at its newline":    {[]string{"{\"a\":\n{}\n"}, []string{bad, `{}`}},
		"broken off, then a line":      {[]string{`{"a":"b`, "{\"a\":1}\n"}, []string{off, `{"a":1}`}},
		"broken off, then a message":   {[]string{`{"a":{}`, `{"a":1}`, `{"a":2}`}, []string{off, `{"a":1}`, `{"a":2}`}},
		"broken off, then nonsense":    {[]string{`{"a":{}`, `x`, `{}`}, []string{off, bad, `{}`}},
		"broken off, nonsense, a line": {[]string{`{"a":{}`, "x\n{}\n"}, []string{off, bad, `{}`}},
		"not UTF-8":                    {[]string{"{\"a\":\"\xff\"}\n{}"}, []string{encoding, `{}`}},
		"1 MiB":                        {[]string{full + "\n", full, full + "\r\n"}, []string{full, full, full}},
		"1 MiB and a byte":             {[]string{sized(MaxFrame+1) + "\n", "{}", sized(MaxFrame + 1), "{}"}, []string{large, "{}", large, "{}"}},
		"1 MiB and a byte, split":      {[]string{full[:99], full[99:MaxFrame-2] + "x", `"}`, "{}"}, []string{large, "{}"}},
		"5 MiB, then nonsense":         {[]string{sized(5 * MaxFrame)[:5*MaxFrame-1], "x\n{}"}, []string{bad, "{}"}},
		"5 MiB of nonsense":            {[]string{strings.Repeat("x", 5*MaxFrame), "{}"}, []string{bad, "{}"}},
		"5 MiB of spaces":              {[]string{strings.Repeat(" ", 5*MaxFrame) + "{}\n"}, []string{"{}"}},
	} {
		if got := collect(c.messages...); !slices.Equal(got, c.want) {
			for i := range got {
				got[i] = fmt.Sprintf("%.60s", got[i])
			}
			t.Errorf("%s: read %q", name, got)
		}
	}
}

// However the frames of a stream are cut into messages, and these into parts,
// they arrive, and nothing else does.
func TestFrameReaderCutAnywhere(t *testing.T) {
	values := rapid.SampledFrom([]string{`{}`, `{"type":"x"}`, `{"a":"ü🔌\"{"}`, `{"a":[{"type":"y"},{}]}`, `{ "b" : {"c":-1.5e3} }`, `{"a":"}\n{"}`})
	spaces := rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", " \n \t\n"})
	rapid.Check(t, func(t *rapid.T) {
		frames := rapid.SliceOfN(values, 1, 8).Draw(t, "frames")
		var stream []byte
		for _, frame := range frames {
			stream = append(append(stream, frame...), spaces.Draw(t, "end")...)
		}
		got := []string{}
		var r FrameReader
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(stream)), 0, 12).Draw(t, "cuts")
		slices.Sort(cuts)
		from := 0
		for _, to := range append(cuts, len(stream)) {
			last := to == len(stream) || rapid.Bool().Draw(t, "the message ends")
			r.Feed(stream[from:to], last, func(frame []byte, err error) {
				if err != nil {
					t.Fatalf("%v", err)
				}
				got = append(got, string(frame))
			})
			from = to
		}
		if diff := cmp.Diff(frames, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Bad lines cost nobody else's frame, however they are cut.
func TestFrameReaderBadLines(t *testing.T) {
	bads := []string{"nonsense", `{"a"`, `{"a":1}}`, `[]`, "\xff", `{"a":"`, `{}{}`, `}`}
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []string
		for i := range rapid.IntRange(1, 10).Draw(t, "lines") {
			line := fmt.Sprintf(`{"n":%d}`, i)
			if rapid.Bool().Draw(t, "bad") {
				line = rapid.SampledFrom(bads).Draw(t, "line")
			} else {
				want = append(want, line)
			}
			stream = append(append(stream, line...), '\n')
		}
		var got []string
		var r FrameReader
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "length")
			r.Feed(stream[:n], true, func(frame []byte, err error) {
				// A bad line may hold a good beginning, cut just behind it.
				if err == nil && strings.HasPrefix(string(frame), `{"n":`) {
					got = append(got, string(frame))
				}
			})
			stream = stream[n:]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("{}\n{\"a\":1}|nonsense|{\"a\":|1}\n\r\n"))
	f.Add([]byte("{\"a\":\"b|{\"a\":1}|{\"a\":2}"))
	f.Add([]byte("{\"a\":\"\xf0\x9f|\x94\x8c\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r FrameReader
		for message := range bytes.SplitSeq(data, []byte("|")) {
			half := len(message) / 2
			emit := func(frame []byte, err error) {
				if err != nil {
					if !errors.Is(err, ErrBadFrame) {
						t.Errorf("%v is no ErrBadFrame", err)
					}
					return
				}
				if bytes.ContainsRune(frame, '\n') || !json.Valid(frame) || !isObject(frame) || !utf8.Valid(frame) || len(frame) > MaxFrame {
					t.Errorf("%q is no frame", frame)
				}
			}
			r.Feed(message[:half], false, emit)
			r.Feed(message[half:], true, emit)
			if r.scan.state == impossible {
				t.Errorf("after %q a frame is kept that cannot become one", message)
			}
		}
		// Whatever was there, two lines later all is well.
		var last string
		r.Feed([]byte("\n{\"z\":1}\n"), true, func(frame []byte, _ error) { last = string(frame) })
		if last != `{"z":1}` {
			t.Errorf("the last frame is %q", last)
		}
	})
}
