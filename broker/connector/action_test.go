package connector

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIntentVector(t *testing.T) {
	intent, err := ParseIntent([]byte(`{"idempotencyKey":"send-1","channelId":"discord","conversationId":"channel-123","replyToId":"message-1","threadId":"thread-2","durability":"required","payload":{"kind":"text","text":"hi"}}`))
	if err != nil {
		t.Fatal(err)
	}
	frame := Outbound{"req-1", intent.Action(), Identity{"discord", "appShared"}}.AppendJSON(nil)
	if diff := cmp.Diff(value(t, readVectors(t).Frames.ToConnector[1]), value(t, frame)); diff != "" {
		t.Error(diff)
	}
}

func TestPayloads(t *testing.T) {
	for payload, want := range map[string]string{
		`{"kind":"text","text":"hi"}`:                                      "hi",
		`{"kind":"text","text":"","more":1}`:                               "",
		`{"kind":"media","media_urls":["u"],"text":"look"}`:                "look",
		`{"kind":"media","media_urls":[],"spoiler":true}`:                  "",
		`{"kind":"voice","media_url":"u"}`:                                 "u",
		`{"kind":"files","file_urls":["a","b"]}`:                           "a\nb",
		`{"kind":"poll","question":"q?","options":["y","n"]}`:              "q?",
		`{"kind":"presentation_blocks","blocks":[{"type":"hr"}]}`:          "",
		`{"kind":"native_channel_data","data":{"content":"c","text":"t"}}`: "c",
		`{"kind":"native_channel_data","data":{"content":"","text":"t"}}`:  "t",
		`{"kind":"native_channel_data","data":{"content":7}}`:              "",
	} {
		p, err := ParsePayload([]byte(payload))
		if err != nil || p.Content() != want {
			t.Errorf("%s: %q, %v", payload, p.Content(), err)
		}
		action := Intent{IdempotencyKey: "i", ChannelID: "p", ConversationID: "c", Payload: p}.Action()
		m, err := ParseMetadata(action.Metadata)
		if err != nil || action.Content != want || action.ReplyTo != "" || m.ThreadID != "" || m.Durability != Required {
			t.Errorf("%s: %+v, %+v, %v", payload, action, m, err)
		}
		if p.Kind() == PayloadText {
			payload = ""
		}
		if string(m.Payload) != payload {
			t.Errorf("the payload of %s is %s", payload, m.Payload)
		}
	}
	if p := Text("hi"); p.Kind() != PayloadText || p.Content() != "hi" {
		t.Errorf("%+v", p)
	}
	if _, err := ParseMetadata([]byte("[]")); err == nil {
		t.Error("a list is taken for metadata")
	}
	for _, bad := range []string{
		``, `null`, `[]`, `{}`, `{"kind":"dance"}`, `{"kind":"text"}`, `{"kind":"text","text":7}`, `{"kind":"media"}`, `{"kind":"media","media_urls":"u"}`,
		`{"kind":"media","media_urls":[],"text":7}`, `{"kind":"voice"}`, `{"kind":"files"}`, `{"kind":"files","file_urls":[7]}`, `{"kind":"poll","question":"q"}`,
		`{"kind":"poll","options":[]}`, `{"kind":"presentation_blocks"}`, `{"kind":"native_channel_data"}`, `{"kind":"native_channel_data","data":[]}`,
	} {
		if p, err := ParsePayload([]byte(bad)); err == nil {
			t.Errorf("%s is taken for %+v", bad, p)
		}
	}
}

func TestIntentsRefused(t *testing.T) {
	const rest = `,"payload":{"kind":"text","text":"x"}}`
	for _, bad := range []string{
		`[]`, `{"idempotencyKey":"i","channelId":"p","conversationId":"c"}`,
		`{"channelId":"p","conversationId":"c"` + rest, `{"idempotencyKey":"i","conversationId":"c"` + rest, `{"idempotencyKey":"i","channelId":"p","conversationId":""` + rest,
		`{"idempotencyKey":"i","channelId":"p","conversationId":"c","threadId":7` + rest, `{"idempotencyKey":"i","channelId":"p","conversationId":"c","durability":"maybe"` + rest,
	} {
		if i, err := ParseIntent([]byte(bad)); err == nil {
			t.Errorf("%s is taken for %+v", bad, i)
		}
	}
	if i, err := ParseIntent([]byte(`{"idempotencyKey":"i","channelId":"p","conversationId":"c","threadId":null` + rest)); err != nil || i.Durability != Required {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestActions(t *testing.T) {
	for want, a := range map[string]Action{
		`{"op":"send","chat_id":"c","content":"x","reply_to":null,"metadata":{}}`:                  {Op: OpSend, ChatID: "c", Content: "x"},
		`{"op":"send","chat_id":"c","content":"x","reply_to":"r","metadata":{"a":1}}`:              {Op: OpSend, ChatID: "c", Content: "x", ReplyTo: "r", Metadata: json.RawMessage(`{"a":1}`)},
		`{"op":"edit","chat_id":"c","message_id":"m","content":"x","metadata":{}}`:                 {Op: OpEdit, ChatID: "c", MessageID: "m", Content: "x"},
		`{"op":"typing","chat_id":"c","metadata":{}}`:                                              {Op: OpTyping, ChatID: "c"},
		`{"op":"get_chat_info","chat_id":"c"}`:                                                     {Op: OpGetChatInfo, ChatID: "c"},
		`{"op":"follow_up","session_key":"s","kind":"k","content":"x"}`:                            {Op: OpFollowUp, SessionKey: "s", Kind: "k", Content: "x"},
		`{"op":"follow_up","session_key":"s","kind":"k","content":"x","metadata":{"a":[{"b":2}]}}`: {Op: OpFollowUp, SessionKey: "s", Kind: "k", Content: "x", Metadata: json.RawMessage(`{"a":[{"b":2}]}`)},
	} {
		got, err := json.Marshal(a)
		if err != nil || string(got) != want {
			t.Errorf("wrote %s, want %s, %v", got, want, err)
		}
		back, err := ParseAction(got)
		if a.Metadata == nil && a.Op != OpGetChatInfo && a.Op != OpFollowUp {
			a.Metadata = json.RawMessage("{}")
		}
		if diff := cmp.Diff(a, back); diff != "" || err != nil {
			t.Errorf("%s: %v, %v", got, diff, err)
		}
	}
	if a, err := ParseAction([]byte(`{"op":"dance","chat_id":-5,"content":null}`)); err != nil || a.Op != "dance" || a.ChatID != "-5" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, bad := range []string{
		`x`, `{}`, `{"op":7}`, `{"op":"send"}`, `{"op":"typing","chat_id":""}`, `{"op":"get_chat_info"}`, `{"op":"edit","chat_id":"c"}`, `{"op":"follow_up","kind":"k"}`,
		`{"op":"follow_up","session_key":"s"}`, `{"op":"send","chat_id":"c","metadata":[]}`,
	} {
		if a, err := ParseAction([]byte(bad)); err == nil {
			t.Errorf("%s is taken for %+v", bad, a)
		}
	}
	for _, bad := range []Action{{}, {Op: OpSend, ChatID: "c", Metadata: []byte("{")}, {Op: OpSend, ChatID: "c", Metadata: []byte("7")}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}

func TestResults(t *testing.T) {
	for raw, want := range map[string]Result{
		`{"success":true,"message_id":17}`:                             {Success: true, MessageID: "17"},
		`{"success":"yes","error":"e","ambiguous":true,"code":"c"}`:    {Error: "e", Ambiguous: true, Code: "c"},
		`{"error":{"x":1},"message_id":null,"code":"egress_declined"}`: {Code: CodeEgressDeclined},
	} {
		got, err := ParseResult([]byte(raw))
		want.Raw = json.RawMessage(raw)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %s, %v", raw, diff, err)
		}
	}
	if _, err := ParseResult([]byte(`[]`)); err == nil {
		t.Error("a list is taken for a result")
	}
	for raw, want := range map[string]ChatInfo{
		`{"success":true,"chat_info":{"name":"n","type":"group"}}`: {"n", "group"},
		`{"success":true,"name":"n"}`:                              {"n", "dm"},
		`{"chat_info":{}}`:                                         {"chat", "dm"},
		`{"chat_info":7,"type":"t"}`:                               {"chat", "t"},
	} {
		if got := (Result{Raw: json.RawMessage(raw)}).ChatInfo("chat"); got != want {
			t.Errorf("%s: %+v", raw, got)
		}
	}
	if got := (Result{}).ChatInfo("chat"); got != (ChatInfo{"chat", "dm"}) {
		t.Errorf("of nothing: %+v", got)
	}
}
