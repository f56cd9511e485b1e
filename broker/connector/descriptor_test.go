package connector

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plain is a descriptor that says as little as one may.
func plain(change func(*Descriptor)) Descriptor {
	d := Descriptor{ContractVersion: 1, Platform: "p", Label: "p", MaxMessageLength: 4096, MarkdownDialect: "plain", LenUnit: Chars, Emoji: "🔌"}
	if change != nil {
		change(&d)
	}
	return d
}

func TestParseDescriptor(t *testing.T) {
	for members, want := range map[string]Descriptor{
		`"contract_version":1`: plain(nil),
		`"contract_version":2,"max_message_length":0,"supports_magic":{}`:                       plain(func(d *Descriptor) { d.ContractVersion = 2 }),
		`"contract_version":99999999999999999999,"max_message_length":-3`:                       plain(func(d *Descriptor) { d.ContractVersion = math.MaxInt }),
		`"contract_version":1,"max_message_length":"9","len_unit":"bytes","supports_edit":1`:    plain(nil),
		`"contract_version":1,"max_message_length":1e99,"label":7,"emoji":null,"pii_safe":"no"`: plain(func(d *Descriptor) { d.MaxMessageLength = math.MaxInt32 }),
		`"contract_version":1,"max_message_length":2000.0,"supported_ops":[]`:                   plain(func(d *Descriptor) { d.MaxMessageLength, d.SupportedOps = 2000, []Op{} }),
		`"contract_version":1,"label":"L","markdown_dialect":"new","len_unit":"utf16","emoji":"E","platform_hint":"h","pii_safe":true,"supports_threads":true,"supports_edit":true,"supports_draft_streaming":true,"supported_ops":["send","dance"]`: {
			ContractVersion: 1, Platform: "p", Label: "L", MaxMessageLength: 4096, SupportsDraftStreaming: true, SupportsEdit: true, SupportsThreads: true,
			MarkdownDialect: "new", LenUnit: UTF16, Emoji: "E", PlatformHint: "h", PIISafe: true, SupportedOps: []Op{OpSend, "dance"},
		},
	} {
		got, err := ParseDescriptor([]byte(`{"platform":"p",` + members + `}`))
		if err != nil {
			t.Errorf("%s: %v", members, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", members, diff)
		}
	}
	for _, bad := range []string{
		`[]`, `{`, `{"contract_version":1}`, `{"contract_version":1,"platform":7}`, `{"platform":"p"}`, `{"contract_version":0,"platform":"p"}`,
		`{"contract_version":00,"platform":"p"}`, `{"contract_version":-1,"platform":"p"}`, `{"contract_version":"1","platform":"p"}`,
		`{"contract_version":1.0,"platform":"p"}`, `{"contract_version":1e0,"platform":"p"}`, `{"contract_version":true,"platform":"p"}`, `{"contract_version":null,"platform":"p"}`,
	} {
		if d, err := ParseDescriptor([]byte(bad)); err == nil {
			t.Errorf("%s is taken for %+v", bad, d)
		}
	}
}

func TestDescriptorWritten(t *testing.T) {
	d := Project(
		PlatformEntry{Name: "telegram", Label: "Telegram", Emoji: "✈️", PlatformHint: "You are on Telegram."},
		ProjectionOptions{LenUnit: UTF16, SupportsEdit: true, SupportsThreads: true, MarkdownDialect: "markdown_v2"},
	)
	for _, frame := range readVectors(t).Frames.FromConnector {
		if f, _ := ParseFrame(frame); f != nil {
			if described, ok := f.(Describe); ok && !cmp.Equal(described.Descriptor, d) {
				t.Error(cmp.Diff(described.Descriptor, d))
			}
		}
	}
	want := `{"contract_version":1,"emoji":"✈️","label":"Telegram","len_unit":"utf16","markdown_dialect":"markdown_v2","max_message_length":4096,"pii_safe":false,"platform":"telegram","platform_hint":"You are on Telegram.","supports_draft_streaming":false,"supports_edit":true,"supports_threads":true}`
	if got := string(d.AppendJSON(nil)); got != want {
		t.Errorf("wrote %s", got)
	}
	d.SupportedOps = []Op{OpSend, OpTyping}
	data, err := json.Marshal(&d)
	if err != nil || !strings.Contains(string(data), `"supported_ops":["send","typing"],"supports_draft`) {
		t.Errorf("%s, %v", data, err)
	}
	var back Descriptor
	if err := json.Unmarshal(data, &back); err != nil || !cmp.Equal(back, d) {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestProjectionDefaults(t *testing.T) {
	got := Project(PlatformEntry{Name: "p"}, DefaultProjection())
	if diff := cmp.Diff(plain(func(d *Descriptor) { d.SupportsEdit = true }), got); diff != "" {
		t.Error(diff)
	}
}

func TestSupports(t *testing.T) {
	d := plain(nil)
	for op, want := range map[Op]bool{OpSend: true, OpEdit: true, OpTyping: true, OpFollowUp: true, OpGetChatInfo: false} {
		if d.Supports(op) != want {
			t.Errorf("%s: %v", op, !want)
		}
	}
	d.SupportedOps = []Op{OpGetChatInfo}
	if d.Supports(OpSend) || !d.Supports(OpGetChatInfo) {
		t.Error("supported_ops does not count")
	}
}

func TestLength(t *testing.T) {
	d := plain(nil)
	if got := d.Length("aü🔌\xff"); got != 4 {
		t.Errorf("%d code points", got)
	}
	d.LenUnit = UTF16
	if got := d.Length("aü🔌\xff"); got != 5 {
		t.Errorf("%d code units", got)
	}
}

func FuzzDescriptor(f *testing.F) {
	f.Add([]byte(`{"contract_version":1,"platform":"p","max_message_length":1e3,"supported_ops":["send"],"emoji":""}`))
	f.Add(plain(nil).AppendJSON(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := ParseDescriptor(raw)
		if err != nil {
			return
		}
		if d.ContractVersion < 1 || d.MaxMessageLength < 1 || d.Platform == "" || d.Emoji == "" || d.LenUnit != Chars && d.LenUnit != UTF16 {
			t.Errorf("%s is read as %+v", raw, d)
		}
		again, err := ParseDescriptor(d.AppendJSON(nil))
		if len(d.SupportedOps) == 0 {
			d.SupportedOps = nil
		}
		if err != nil || !cmp.Equal(again, d) {
			t.Errorf("%s is written as %s: %v", raw, d.AppendJSON(nil), err)
		}
	})
}
