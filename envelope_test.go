package agentrelay

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEnvelopeDefaults(t *testing.T) {
	want := Message{
		From: "alpha", To: "beta", Type: TypeMessage, Kind: KindMessage, Status: StatusQueued, Body: []byte(`{}`),
	}
	for _, text := range []string{
		`{"to":"beta"}`,
		`{"to":"beta","from":"alpha"}`,
		`{"to":"beta","agent":"alpha"}`,
		`{"to":"beta","id":null,"type":null,"kind":null,"from":null,"replyTo":null,"rootId":null,"parentId":null}`,
		`{"to":"beta","ack":false,"replyTo":"","type":"message","kind":"message"}`,
		// What the broker sets is ignored, of whatever type.
		`{"to":"beta","ts":"2001-01-01T00:00:00Z","status":"done","attempts":7,"leaseUntil":1,"leaseId":"x","error":"e","deliveredAt":"d"}`,
		`{"to":"beta","ts":1,"status":[],"attempts":"x","leaseUntil":{},"leaseId":5,"error":null,"recipient":true,"":0}`,
		// Names of another case are other members.
		`{"to":"beta","To":"gamma","TO":1,"ID":"x","Id":7,"Body":1,"BODY":2,"Kind":"no","Type":3,"From":"eve","replyto":"x","ReplyTo":"x","Ack":"x","rootid":1,"parentID":2}`,
		// Of several the last counts.
		`{"to":1,"to":"gamma","to":"beta","id":"x","id":null,"body":1,"body":{}}`,
		`{"\u0074o":"b\u0065ta","f\u0072om":"alph\u0061"}`,
	} {
		got, err := ParseEnvelope([]byte(text), "alpha")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
}

func TestParseEnvelopeMembers(t *testing.T) {
	got, err := ParseEnvelope([]byte(`{"parentId":"p/1","rootId":"r:1","replyTo":"q","ack":true,"kind":"request","type":"ack","from":"alpha","to":"beta","id":"a/b+c","body":[1]}`), "alpha")
	if err != nil {
		t.Fatal(err)
	}
	want := Message{
		ID: "a/b+c", From: "alpha", To: "beta", Type: TypeAck, Kind: KindRequest, Status: StatusQueued, Body: []byte(`[1]`),
		Ack: true, ReplyTo: "q", RootID: "r:1", ParentID: "p/1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, kind := range []Kind{KindMessage, KindRequest, KindReply} {
		got, err := ParseEnvelope([]byte(`{"to":"beta","kind":"`+string(kind)+`"}`), "alpha")
		if err != nil || got.Kind != kind {
			t.Errorf("kind %s: %v, %v", kind, got.Kind, err)
		}
	}
}

var bodies = []string{
	`{}`, `null`, `true`, `false`, `0`, `-0`, `""`, `[]`, `"text"`,
	`123456789012345678901234567890`, `1e400`, `1.0`, `1.10`, `1E+2`, `-0.0`, `0.1e-9`,
	`{"b":1,"a":2,"b":3}`, `{ "spaced" :  [ 1 ,2 ] }`, "{\n  \"pretty\": true\r\n\t}",
	`"\u0041\/\b\f\n\r\t\"\\"`, `"\ud83d\ude0a"`, `"😊"`, `"\u2028\u2029"`, "\"\u2028\u2029\"", `"\ud800"`, `"<>&"`, `"\u003c"`, `"é"`, `"\u0000"`,
	"\"\x7f\u0080\u009f\ufeff\U0010ffff\"",
	`{"to":"gamma","id":"x","body":{"body":null}}`, `[[[[[[]]]]]]`, `"}"`, `"\"}"`, `["]",{"}":"{"}]`,
}

func TestBodyIsKeptByteForByte(t *testing.T) {
	for _, body := range bodies {
		for _, form := range []string{`{"to":"beta","body":%}`, `{"body":%,"to":"beta"}`, "{ \"to\" : \"beta\" ,\n\"body\" : % \n}"} {
			text := strings.Replace(form, "%", body, 1)
			m, err := ParseEnvelope([]byte(text), "alpha")
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if string(m.Body) != body {
				t.Errorf("%s: body %s", text, m.Body)
			}
			var back Message
			if err := json.Unmarshal(m.AppendJSON(nil), &back); err != nil || string(back.Body) != body {
				t.Errorf("%s: comes back as %s, %v", text, back.Body, err)
			}
		}
	}
}

func TestParseEnvelopeRefuses(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{``, "JSON"},
		{`null`, "object"},
		{`[]`, "object"},
		{`"x"`, "object"},
		{`{"to":"beta"`, "JSON"},
		{`{"to":"beta"}{}`, "JSON"},
		{"{\"to\":\"beta\",\"body\":\"\xff\"}", "UTF-8"},
		{`{}`, `"to" is missing`},
		{`{"to":null}`, `"to" is missing`},
		{`{"To":"beta"}`, `"to" is missing`},
		{`{"to":"beta","to":null}`, `"to" is missing`},
		{`{"to":""}`, `"to" must be an agent name`},
		{`{"to":"a b"}`, `"to" must be an agent name`},
		{`{"to":"` + strings.Repeat("n", 65) + `"}`, `"to" must be an agent name`},
		{`{"to":7}`, `"to" must be a string`},
		{`{"to":["beta"]}`, `"to" must be a string`},
		{`{"to":"alpha"}`, "itself"},
		{`{"to":"beta","id":""}`, `"id" must be`},
		{`{"to":"beta","id":"a b"}`, `"id" must be`},
		{`{"to":"beta","id":"../x"}`, `"id" must be`},
		{`{"to":"beta","id":"cursor:ab:1"}`, `"id" must be`},
		{`{"to":"beta","id":"connector:x"}`, `"id" must be`},
		{`{"to":"beta","id":"` + strings.Repeat("i", 129) + `"}`, `"id" must be`},
		{`{"to":"beta","id":1}`, `"id" must be a string`},
		{`{"to":"beta","id":{}}`, `"id" must be a string`},
		{`{"to":"beta","type":""}`, `"type" must be`},
		{`{"to":"beta","type":"Message"}`, `"type" must be`},
		{`{"to":"beta","type":"receipt"}`, `"type" must be`},
		{`{"to":"beta","type":false}`, `"type" must be a string`},
		{`{"to":"beta","kind":""}`, `"kind" must be`},
		{`{"to":"beta","kind":"ack"}`, `"kind" must be`},
		{`{"to":"beta","kind":1}`, `"kind" must be a string`},
		{`{"to":"beta","from":"gamma"}`, `"from" must be the agent`},
		{`{"to":"beta","from":"Alpha"}`, `"from" must be the agent`},
		{`{"to":"beta","from":""}`, `"from" must be the agent`},
		{`{"to":"beta","from":[]}`, `"from" must be a string`},
		{`{"to":"beta","agent":"gamma"}`, `"agent" must be the agent`},
		{`{"to":"beta","agent":7}`, `"agent" must be a string`},
		{`{"to":"beta","replyTo":1}`, `"replyTo" must be a string`},
		{`{"to":"beta","rootId":true}`, `"rootId" must be a string`},
		{`{"to":"beta","parentId":{}}`, `"parentId" must be a string`},
		{`{"to":"beta","replyTo":"` + strings.Repeat("r", 1025) + `"}`, `"replyTo" must be`},
		{`{"to":"beta","rootId":"a\u0000"}`, `"rootId" must be`},
		{`{"to":"beta","parentId":"\u0085"}`, `"parentId" must be`},
		{`{"to":"beta","ack":null}`, `"ack" must be true or false`},
		{`{"to":"beta","ack":"true"}`, `"ack" must be true or false`},
		{`{"to":"beta","ack":1}`, `"ack" must be true or false`},
		{`{"to":"beta","ack":{}}`, `"ack" must be true or false`},
	} {
		m, err := ParseEnvelope([]byte(c.text), "alpha")
		if !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s: %v, want bad_request with %q", c.text, err, c.says)
		}
		if diff := cmp.Diff(Message{}, m); diff != "" {
			t.Errorf("%.60s: a message with the error: %s", c.text, diff)
		}
	}
}

// The order in which members are checked decides which of several faults is
// told.
func TestParseEnvelopeOrder(t *testing.T) {
	members := []struct{ bad, says string }{
		{`"id":"a b"`, `"id"`}, {`"to":"a b"`, `"to"`}, {`"type":"x"`, `"type"`}, {`"kind":"x"`, `"kind"`}, {`"from":"x"`, `"from"`},
	}
	for i := range members {
		var list []string
		for j := len(members) - 1; j >= i; j-- {
			list = append(list, members[j].bad)
		}
		if i > 1 {
			list = append(list, `"to":"alpha"`)
		}
		_, err := ParseEnvelope([]byte("{"+strings.Join(list, ",")+"}"), "alpha")
		if err == nil || !strings.HasPrefix(err.Error(), members[i].says) {
			t.Errorf("%v: %v, want %s first", list, err, members[i].says)
		}
	}
}

func FuzzParseEnvelope(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(`{"to":"beta","body":` + body + `}`))
	}
	for _, text := range []string{
		``, `{}`, `null`, `{"to":"beta"}`, `{"to":"beta","id":"a/b","kind":"reply","type":"ack","ack":true,"replyTo":"x","rootId":"y","parentId":"z"}`,
		` {"to" : "beta" , "body" : "x" } `, `{"\u0074o":"beta","body":1,"body":2}`, `{"to":"beta","from":"alpha","ack":null}`, `{"to":"beta",}`, `{"to":"beta"}{}`, `{"to":"alpha"}`,
		`{"to":"beta","replyTo":"\ud800\"\\ é"}`, strings.Repeat(`{"to":`, 50),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseEnvelope(data, "alpha")
		if err != nil {
			if !errors.Is(err, ErrBadRequest) {
				t.Fatalf("%v is not bad_request", err)
			}
			return
		}
		if m.From != "alpha" || m.To == "alpha" || !ValidName(m.To) || m.ID != "" && !ValidID(m.ID) || !json.Valid(m.Body) {
			t.Fatalf("%q is accepted as %+v", data, m)
		}
		text := m.AppendJSON(nil)
		if !json.Valid(text) {
			t.Fatalf("%q is written as %q, which is no JSON", data, text)
		}
		var back Message
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !bytes.Equal(back.Body, m.Body) {
			t.Fatalf("%q: body %q comes back as %q", data, m.Body, back.Body)
		}
		if back.Fingerprint() != m.Fingerprint() {
			t.Fatalf("%q comes back as %q with another fingerprint", data, text)
		}
		if m.ID == "" {
			return // written so only once the broker has named it
		}
		again, err := ParseEnvelope(text, "alpha")
		if err != nil || again.Fingerprint() != m.Fingerprint() {
			t.Fatalf("%q is read as another message: %v", text, err)
		}
	})
}
