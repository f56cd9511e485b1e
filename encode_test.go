package agentrelay

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var (
	accepted  = time.Date(2026, 8, 15, 12, 30, 45, 678_900_000, time.FixedZone("", 7200))
	fullMsg   = Message{ID: "i/1", From: "alpha", To: "beta", TS: accepted, Type: TypeAck, Body: []byte(`{ "n":1e400}`), ReplyTo: "r", Ack: true, Kind: KindReply, RootID: "ro", ParentID: "pa", Status: StatusLeased, Attempts: 2, LeaseUntil: time.UnixMilli(1755250000123), LeaseID: "le", Error: "a \"b\"\n"}
	plainMsg  = Message{ID: "i", From: "alpha", To: "beta", TS: time.Unix(0, 0), Type: TypeMessage, Kind: KindMessage, Status: StatusQueued}
	fullText  = `{"id":"i/1","from":"alpha","to":"beta","ts":"2026-08-15T10:30:45.678Z","type":"ack","body":{ "n":1e400},"replyTo":"r","ack":true,"kind":"reply","rootId":"ro","parentId":"pa","status":"leased","attempts":2,"leaseUntil":1755250000123,"leaseId":"le","error":"a \"b\"\n"}`
	plainText = `{"id":"i","from":"alpha","to":"beta","ts":"1970-01-01T00:00:00.000Z","type":"message","body":{},"replyTo":null,"ack":false,"kind":"message","rootId":null,"parentId":null,"status":"queued","attempts":0,"leaseUntil":null,"leaseId":null}`
)

func TestAppendJSON(t *testing.T) {
	for want, m := range map[string]Message{fullText: fullMsg, plainText: plainMsg} {
		got := string(m.AppendJSON([]byte("x")))
		if got != "x"+want {
			t.Errorf("envelope\n%s, want\n%s", got[1:], want)
		}
	}
}

func TestUnmarshalEnvelope(t *testing.T) {
	for text, want := range map[string]Message{fullText: fullMsg, plainText: plainMsg} {
		var got Message
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		want.TS = want.TS.Truncate(time.Millisecond)
		if want.Body == nil {
			want.Body = []byte(`{}`)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
		if string(got.Body) != string(want.Body) {
			t.Errorf("body %s", got.Body)
		}
	}
}

func TestUnmarshalStatusEntry(t *testing.T) {
	for text, want := range map[string]Message{
		`{"id":"x","status":"not_found","attempts":0}`: {ID: "x", Status: "not_found"},
		`{"id":"x","status":"done","attempts":1,"ts":"2026-08-15T10:30:45.678Z","from":"alpha","to":"beta","kind":"request","deliveredAt":"2026-08-15T10:30:46.000Z"}`: {
			ID: "x", Status: StatusDone, Attempts: 1, TS: time.Date(2026, 8, 15, 10, 30, 45, 678e6, time.UTC), From: "alpha", To: "beta", Kind: KindRequest,
			DeliveredAt: time.Date(2026, 8, 15, 10, 30, 46, 0, time.UTC),
		},
		// Of other members and other cases nothing is taken; null is absent.
		`{"id":"x","ID":"y","Body":1,"status":"queued","STATUS":"done","ts":null,"leaseUntil":null,"body":null,"more":{"id":"z"}}`: {
			ID: "x", Status: StatusQueued, Body: []byte(`null`),
		},
	} {
		got := Message{Error: "left from before"}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
}

func TestUnmarshalEnvelopeRefuses(t *testing.T) {
	for _, text := range []string{
		`[]`, `7`, `{"id":1}`, `{"ts":"yesterday"}`, `{"attempts":"x"}`, `{"leaseUntil":"soon"}`, `{"ack":"yes"}`, "{\"id\":\"\xff\"}",
	} {
		m := Message{ID: "kept"}
		if err := m.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%q reads as %+v", text, m)
		}
		if m.ID != "kept" {
			t.Errorf("%q is refused and changes the message", text)
		}
	}
}

// The caller may use its buffer again.
func TestUnmarshalEnvelopeKeepsNoMemory(t *testing.T) {
	data := []byte(`{"id":"x","body":"text"}`)
	var m Message
	if err := m.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if m.ID != "x" || string(m.Body) != `"text"` {
		t.Errorf("id %q, body %q", m.ID, m.Body)
	}
}

func TestMarshalJSON(t *testing.T) {
	m := plainMsg
	got, err := json.Marshal(m)
	if err != nil || string(got) != plainText {
		t.Errorf("%s, %v", got, err)
	}
	m.DeliveredAt = accepted
	got, err = json.Marshal(&m)
	want := strings.TrimSuffix(plainText, "}") + `,"deliveredAt":"2026-08-15T10:30:45.678Z"}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	m.Body = []byte(`{`)
	if got, err := json.Marshal(m); err == nil {
		t.Errorf("a broken body is written: %s", got)
	}
}

func TestAppendString(t *testing.T) {
	for s, want := range map[string]string{
		"":                   `""`,
		"plain":              `"plain"`,
		`a"b\c/d`:            `"a\"b\\c/d"`,
		"\n\r\t\b\f\x00\x1f": `"\n\r\t\u0008\u000c\u0000\u001f"`,
		"\x7f":               "\"\x7f\"",
		"é😊\u2028<>&":        "\"é😊\u2028<>&\"",
		"a\xffb\xc3":         "\"a\ufffdb\ufffd\"",
		"\ufffd":             "\"\ufffd\"",
		"\xed\xa0\x80":       "\"\ufffd\ufffd\ufffd\"",
	} {
		got := string(AppendString(nil, s))
		if got != want {
			t.Errorf("%q is written as %s, want %s", s, got, want)
		}
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || utf8.ValidString(s) && back != s {
			t.Errorf("%s reads as %q, %v", got, back, err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	base := fullMsg
	same := base
	same.TS, same.Status, same.Attempts, same.LeaseUntil, same.LeaseID = time.Time{}, StatusDone, 9, time.Time{}, ""
	same.Error, same.DeliveredAt = "", accepted
	if base.Fingerprint() != same.Fingerprint() {
		t.Error("members that change are part of the fingerprint")
	}
	for name, change := range map[string]func(*Message){
		"id":                  func(m *Message) { m.ID += "x" },
		"from":                func(m *Message) { m.From += "x" },
		"to":                  func(m *Message) { m.To += "x" },
		"type":                func(m *Message) { m.Type = TypeMessage },
		"kind":                func(m *Message) { m.Kind = KindMessage },
		"replyTo":             func(m *Message) { m.ReplyTo = "" },
		"rootId":              func(m *Message) { m.RootID = "" },
		"parentId":            func(m *Message) { m.ParentID = "" },
		"ack":                 func(m *Message) { m.Ack = false },
		"body":                func(m *Message) { m.Body = []byte(`{"n":1e400}`) },
		"moved between names": func(m *Message) { m.RootID, m.ParentID = m.ParentID, m.RootID },
		"moved letter":        func(m *Message) { m.From, m.To = "alphab", "eta" },
		"moved into the body": func(m *Message) { m.Ack = false; m.Body = append([]byte{1}, m.Body...) },
	} {
		m := fullMsg
		change(&m)
		if m.Fingerprint() == base.Fingerprint() {
			t.Errorf("%s: the fingerprint is the same", name)
		}
	}
}
