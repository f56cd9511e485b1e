package connector

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrames(t *testing.T) {
	for raw, want := range map[string]Frame{
		`{"type":"hello","platform":"p","botId":7}`:                                                                     Hello{"p", "7"},
		`{"type":"interrupt","session_key":"k","reason":"r"}`:                                                           Interrupt{"k", "r"},
		`{"type":"interrupt_inbound","session_key":"k","chat_id":-100}`:                                                 InterruptInbound{SessionKey: "k", ChatID: "-100"},
		`{"type":"inbound","event":{ "a" : 12345678901234567890 }}`:                                                     Inbound{Event: []byte(`{ "a" : 12345678901234567890 }`)},
		`{"type":"inbound","event":{},"bufferId":null,"event2":1}`:                                                      Inbound{Event: []byte(`{}`)},
		`{"type":"going_idle_ack","x":[]}`:                                                                              GoingIdleAck{},
		`{"Type":"inbound","type":"new"}`:                                                                               Unknown{"new", []byte(`{"Type":"inbound","type":"new"}`)},
		`{"type":"passthrough_forward","forward":{"bodyB64":"?"}}`:                                                      Passthrough{},
		`{"type":"passthrough_forward","forward":{"headers":[["a","b"],["c"],"d",["e","f","g"],["h",1],["i",null],7]}}`: Passthrough{Headers: [][2]string{{"a", "b"}}},
		`{"type":"passthrough_forward","forward":{"headers":"x","bodyB64":7}}`:                                          Passthrough{},
	} {
		got, err := ParseFrame([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func TestFramesRefused(t *testing.T) {
	for raw, buffer := range map[string]string{
		`x`: "", `[]`: "", `{}`: "", `{"type":7}`: "", `{"type":""}`: "", `{"type":"inbound"`: "",
		`{"type":"inbound","bufferId":"b"}`:                                 "b",
		`{"type":"inbound","event":"SECRET","bufferId":"b"}`:                "b",
		`{"type":"inbound","event":{},"bufferId":7}`:                        "",
		`{"type":"passthrough_forward","forward":[],"bufferId":"b"}`:        "b",
		`{"type":"passthrough_forward","forward":{},"bufferId":{}}`:         "",
		`{"type":"interrupt_inbound"}`:                                      "",
		`{"type":"interrupt"}`:                                              "",
		`{"type":"inbound_ack"}`:                                            "",
		`{"type":"outbound_result","result":{}}`:                            "",
		`{"type":"outbound_result","requestId":"r"}`:                        "",
		`{"type":"outbound","requestId":"r"}`:                               "",
		`{"type":"outbound","action":{}}`:                                   "",
		`{"type":"outbound","requestId":"r","action":{}}`:                   "",
		`{"type":"descriptor"}`:                                             "",
		`{"type":"descriptor","descriptor":{"platform":"SECRET"}}`:          "",
		`{"type":"` + strings.Repeat("x", 99) + `","event":SECRET`:          "",
		`{"type":"passthrough_forward","bufferId":"b","forward":"SECRET  "`: "",
	} {
		_, err := ParseFrame([]byte(raw))
		var refused *FrameError
		if !errors.As(err, &refused) || refused.BufferID != buffer {
			t.Errorf("%s: %#v", raw, err)
			continue
		}
		if strings.Contains(err.Error(), "SECRET") || errors.Unwrap(err) == nil {
			t.Errorf("the error says %v", err)
		}
	}
}

func TestFramesWritten(t *testing.T) {
	action := Action{Op: OpTyping, ChatID: "c", Metadata: []byte("{\n\"a\" : \"x\\ny\"\n}")}
	for want, frame := range map[string]Frame{
		`{"type":"outbound","requestId":"r","action":{"op":"typing","chat_id":"c","metadata":{"a":"x\ny"}},"platform":"p","botId":"b"}`:              Outbound{"r", action, Identity{"p", "b"}},
		`{"type":"interrupt","session_key":"k","reason":"r"}`:                                                                                        Interrupt{"k", "r"},
		`{"type":"inbound","event":{"a":1}}`:                                                                                                         Inbound{Event: []byte("{\"a\":\n1}")},
		`{"type":"inbound","event":null,"bufferId":"b"}`:                                                                                             Inbound{Event: []byte("{"), BufferID: "b"},
		`{"type":"passthrough_forward","forward":{"platform":"","botId":"","method":"","path":"","headers":[["a","b"],["c","d"]],"bodyB64":"eA=="}}`: Passthrough{Headers: [][2]string{{"a", "b"}, {"c", "d"}}, Body: []byte("x")},
		`{"type":"new","x":1}`: Unknown{"new", []byte(`{"type":"new", "x":1}`)},
		`{"type":"outbound_result","requestId":"r","result":{"success":false,"message_id":"m","error":"e","ambiguous":true,"code":"c"}}`:        OutboundResult{"r", Result{MessageID: "m", Error: "e", Ambiguous: true, Code: "c"}},
		`{"type":"outbound_result","requestId":"r","result":{"success":true}}`:                                                                  OutboundResult{"r", Result{Success: true}},
		`{"type":"outbound_result","requestId":"r","result":{"success":true,"chat_info":{"name":"n","type":"t"}}}`:                              OutboundResult{"r", Result{Raw: ChatInfo{"n", "t"}.AppendResult(nil)}},
		`{"type":"descriptor","descriptor":` + string(Project(PlatformEntry{Name: "p", Label: "P"}, DefaultProjection()).AppendJSON(nil)) + `}`: Describe{Project(PlatformEntry{Name: "p", Label: "P"}, DefaultProjection())},
	} {
		if got := string(frame.AppendJSON(nil)); got != want {
			t.Errorf("wrote %s, want %s", got, want)
		}
	}
}

func TestStripTrust(t *testing.T) {
	for event, want := range map[string]string{
		`{"a":1}`: `{"a":1}`,
		`{ "source" : { "x" : 1 } , "access" : {} }`:                                                           `{ "source" : { "x" : 1 } , "access" : {} }`,
		`{ "n": 1e400 , "source" : { "deliveredViaUpstreamRelay":true , "x" : "\u00e9" } , "z":[ ] }`:          `{"n": 1e400,"source" : {"x" : "\u00e9"},"z":[ ]}`,
		`{"source":{"x":1,"delivered_via_upstream_relay":{"a":[1]}},"access":{"deliveredViaUpstreamRelay":0}}`: `{"source":{"x":1},"access":{}}`,
		// Other spellings of the same names.
		`{"s\u006furce":{"delivered_vi\u0061_upstream_relay":true,"y":2}}`: `{"s\u006furce":{"y":2}}`,
		// Names that occur twice: which one counts is the reader's choice.
		`{"source":{"delivered_via_upstream_relay":1,"delivered_via_upstream_relay":2},"source":{"deliveredViaUpstreamRelay":1}}`: `{"source":{},"source":{}}`,
		// Elsewhere it says nothing.
		`{"deliveredViaUpstreamRelay":1,"x":{"source":{"deliveredViaUpstreamRelay":1}},"source":[{"deliveredViaUpstreamRelay":1}]}`: `{"deliveredViaUpstreamRelay":1,"x":{"source":{"deliveredViaUpstreamRelay":1}},"source":[{"deliveredViaUpstreamRelay":1}]}`,
		`{"source":"deliveredViaUpstreamRelay","access":null}`:                                                                      `{"source":"deliveredViaUpstreamRelay","access":null}`,
		`"text"`: `"text"`, `{`: `{`, `{"a" 1}`: `{"a" 1}`, `{"a":}`: `{"a":}`, `{1:2}`: `{1:2}`,
	} {
		if got := string(StripTrust([]byte(event))); got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", event, got, want)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, raw := range []string{
		`{"type":"inbound","event":{"source":{"deliveredViaUpstreamRelay":1}},"bufferId":"b"}`,
		`{"type":"descriptor","descriptor":{"contract_version":1,"platform":"p","supported_ops":["send"]}}`,
		`{"type":"outbound","requestId":"r","action":{"op":"send","chat_id":"c","metadata":{}},"platform":"p","botId":"b"}`,
		`{"type":"outbound_result","requestId":"r","result":{"success":true,"message_id":1}}`,
		`{"type":"passthrough_forward","forward":{"headers":[["a","b"]],"bodyB64":"eA=="}}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		frame, err := ParseFrame(raw)
		var refused *FrameError
		if err != nil {
			if !errors.As(err, &refused) {
				t.Errorf("%v is no FrameError", err)
			}
			return
		}
		if in, ok := frame.(Inbound); ok {
			// What was stripped stays so, for any reader.
			if again := StripTrust(in.Event); string(again) != string(in.Event) {
				t.Errorf("%s is stripped of more: %s", in.Event, again)
			}
		}
		written := frame.AppendJSON(nil)
		again, err := ParseFrame(written)
		if err != nil || strings.Contains(string(written), "\n") {
			t.Fatalf("%s is written as %s: %v", raw, written, err)
		}
		if second := again.AppendJSON(nil); string(second) != string(written) {
			t.Errorf("%s is written as %s, and then as %s", raw, written, second)
		}
	})
}
