package agentrelay

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestParseObjectKeepsValues(t *testing.T) {
	text := ` { "a" : 12345678901234567890.10e+05 , "b":"x\u0041\"}\\",` + "\n" + `"c":[1, {"d":"]"}],"e":{"f":{}},"g":null,"h":true,"i":-0 ,"\u006a":"k"}` + "\r\n\t "
	o, err := ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": `12345678901234567890.10e+05`, "b": `"x\u0041\"}\\"`, "c": `[1, {"d":"]"}]`, "e": `{"f":{}}`,
		"g": `null`, "h": `true`, "i": `-0`, "j": `"k"`,
	} {
		if got, ok := o.Get(name); !ok || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"A", "d", "f", "", "k"} {
		if got, ok := o.Get(name); ok {
			t.Errorf("%q is %q, want absent", name, got)
		}
	}
}

func TestParseObjectOfSeveralTheLast(t *testing.T) {
	o, err := ParseObject([]byte(`{"a":1,"A":2,"a":"three","\u0061":[4]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := o.Get("a"); string(got) != `[4]` {
		t.Errorf("a is %s", got)
	}
	if got, _ := o.Get("A"); string(got) != `2` {
		t.Errorf("A is %s", got)
	}
}

func TestParseObjectEmpty(t *testing.T) {
	for _, text := range []string{`{}`, ` { } `, "\t{\n}\r\n"} {
		if o, err := ParseObject([]byte(text)); err != nil || len(o) != 0 {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
}

func TestParseObjectRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "null", "true", "1", `"x"`, "[]", "[{}]", "{", "}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{'a':1}`,
		"{}{}", "{} x", `{"a":1} {"a":1}`, "{}\x00", "\ufeff{}", `{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":NaN}`, `{"a":Infinity}`,
		`{"a":"` + "\n" + `"}`, `{"a":"\x"}`, `{"a":"\ud8"}`, `{"a":tru}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", "{\"a\":\"\xed\xa0\x80\"}",
		"// x\n{}", `{"a":1 /* x */}`, "<html></html>", "{\"a\":1\v}", strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000),
	} {
		if o, err := ParseObject([]byte(text)); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%.40q: %v, %v; want bad_request", text, o, err)
		}
	}
}

func TestParseObjectDepth(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1))
	}
	if _, err := ParseObject(nested(maxDepth)); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	if _, err := ParseObject(nested(maxDepth + 1)); !errors.Is(err, ErrBadRequest) {
		t.Errorf("%d levels: %v, want bad_request", maxDepth+1, err)
	}
	arrays := []byte(`{"body":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}")
	if _, err := ParseObject(arrays); !errors.Is(err, ErrBadRequest) {
		t.Errorf("arrays: %v, want bad_request", err)
	}
}

func TestObjectText(t *testing.T) {
	o, err := ParseObject([]byte(`{"text":"a\u00e9\ud83d\udd0c\/","empty":"","null":null,"number":1,"true":true,"list":[],"object":{},"lone":"\ud800x"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text   string
		present, bad bool
	}{
		{"text", "aé🔌/", true, false},
		{"empty", "", true, false},
		{"lone", "\ufffdx", true, false},
		{"null", "", false, false},
		{"missing", "", false, false},
		{"number", "", false, true},
		{"true", "", false, true},
		{"list", "", false, true},
		{"object", "", false, true},
	} {
		text, present, err := o.Text(c.name)
		if text != c.text || present != c.present || errors.Is(err, ErrBadRequest) != c.bad || !c.bad && err != nil {
			t.Errorf("%s: %q, %v, %v", c.name, text, present, err)
		}
		if c.bad && !strings.Contains(err.Error(), `"`+c.name+`"`) {
			t.Errorf("%s: the error %q does not name it", c.name, err)
		}
	}
}

// What the own reader says of an object must be what encoding/json says of it.
func TestParseObjectAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range []string{
		`{"a":"\\","b":"\\\"","c":"[{","d":[[],[{}],"}"],"e":1.5e-3}`,
		`{"":1," ":2,"a b":3,"\n":4,"\\":5,"\"":6}`,
		`{ "a" : [ 1 , 2 ] , "b" : { "c" : null } }`,
	} {
		o, err := ParseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if len(o) != len(want) {
			t.Errorf("%s: %d members, want %d", text, len(o), len(want))
		}
		for name, value := range want {
			if got, ok := o.Get(name); !ok || string(got) != string(value) {
				t.Errorf("%s: %q is %q, want %q", text, name, got, value)
			}
		}
	}
}
