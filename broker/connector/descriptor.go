package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	agentrelay "github.com/agent-relay/agent-relay"
)

// What a descriptor says when it does not say it.
const (
	DefaultMaxMessageLength = 4096
	DefaultMarkdownDialect  = "plain"
	DefaultEmoji            = "🔌"
)

// LenUnit is what a platform counts message lengths in.
type LenUnit string

// Chars are Unicode code points, UTF16 the code units of UTF-16.
const (
	Chars LenUnit = "chars"
	UTF16 LenUnit = "utf16"
)

// Descriptor is what a connector can do on one of its platforms.
type Descriptor struct {
	// ContractVersion may be higher than this package's; then what this
	// package knows of the descriptor is used.
	ContractVersion int
	Platform        string
	Label           string
	// MaxMessageLength is counted in LenUnit.
	MaxMessageLength       int
	SupportsDraftStreaming bool
	SupportsEdit           bool
	SupportsThreads        bool
	MarkdownDialect        string
	LenUnit                LenUnit
	Emoji                  string
	PlatformHint           string
	PIISafe                bool
	// SupportedOps lists the ops that the connector takes. Empty means send,
	// edit, typing and follow_up.
	SupportedOps []Op
}

// ParseDescriptor reads a descriptor. It refuses one without a platform, and
// one whose contract_version is not written as an integer of at least 1. Any
// other member that is missing or has the wrong type takes its default: the
// platform's name as label, 4096 as length, false, plain, chars, 🔌, no hint.
func ParseDescriptor(data []byte) (Descriptor, error) {
	o, err := parseObject(data)
	if err != nil {
		return Descriptor{}, fmt.Errorf("a descriptor must be a JSON object: %w", err)
	}
	d := Descriptor{
		Label:                  o.text("label"),
		Platform:               o.text("platform"),
		SupportsDraftStreaming: o.flag("supports_draft_streaming"),
		SupportsEdit:           o.flag("supports_edit"),
		SupportsThreads:        o.flag("supports_threads"),
		MarkdownDialect:        o.text("markdown_dialect"),
		LenUnit:                LenUnit(o.text("len_unit")),
		Emoji:                  o.text("emoji"),
		PlatformHint:           o.text("platform_hint"),
		PIISafe:                o.flag("pii_safe"),
	}
	if d.ContractVersion, err = parseVersion(o["contract_version"]); err != nil {
		return Descriptor{}, err
	}
	if d.Platform == "" {
		return Descriptor{}, errors.New("the descriptor names no platform")
	}
	var length float64
	if json.Unmarshal(o["max_message_length"], &length) == nil && length >= 1 {
		d.MaxMessageLength = int(min(length, math.MaxInt32))
	}
	var ops []Op
	if json.Unmarshal(o["supported_ops"], &ops) == nil {
		d.SupportedOps = ops
	}
	return d.withDefaults(), nil
}

func parseVersion(raw json.RawMessage) (int, error) {
	text := string(raw)
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			text = ""
			break
		}
	}
	if text == "" {
		return 0, errors.New("the descriptor's contract_version is not an integer of at least 1")
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		version = math.MaxInt // digits alone fail for their number only
	}
	if version == 0 {
		return 0, errors.New("the descriptor's contract_version is 0; this relay needs 1")
	}
	return version, nil
}

func (d Descriptor) withDefaults() Descriptor {
	if d.Label == "" {
		d.Label = d.Platform
	}
	if d.MaxMessageLength <= 0 {
		d.MaxMessageLength = DefaultMaxMessageLength
	}
	if d.MarkdownDialect == "" {
		d.MarkdownDialect = DefaultMarkdownDialect
	}
	if d.LenUnit != UTF16 {
		d.LenUnit = Chars
	}
	if d.Emoji == "" {
		d.Emoji = DefaultEmoji
	}
	return d
}

// AppendJSON appends the descriptor as JSON, compact and with sorted keys.
// supported_ops is left out when it is empty.
func (d Descriptor) AppendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"contract_version":`...), int64(d.ContractVersion), 10)
	b = agentrelay.AppendString(append(b, `,"emoji":`...), d.Emoji)
	b = agentrelay.AppendString(append(b, `,"label":`...), d.Label)
	b = agentrelay.AppendString(append(b, `,"len_unit":`...), string(d.LenUnit))
	b = agentrelay.AppendString(append(b, `,"markdown_dialect":`...), d.MarkdownDialect)
	b = strconv.AppendInt(append(b, `,"max_message_length":`...), int64(d.MaxMessageLength), 10)
	b = strconv.AppendBool(append(b, `,"pii_safe":`...), d.PIISafe)
	b = agentrelay.AppendString(append(b, `,"platform":`...), d.Platform)
	b = agentrelay.AppendString(append(b, `,"platform_hint":`...), d.PlatformHint)
	if len(d.SupportedOps) > 0 {
		b = append(b, `,"supported_ops":[`...)
		for i, op := range d.SupportedOps {
			if i > 0 {
				b = append(b, ',')
			}
			b = agentrelay.AppendString(b, string(op))
		}
		b = append(b, ']')
	}
	b = strconv.AppendBool(append(b, `,"supports_draft_streaming":`...), d.SupportsDraftStreaming)
	b = strconv.AppendBool(append(b, `,"supports_edit":`...), d.SupportsEdit)
	b = strconv.AppendBool(append(b, `,"supports_threads":`...), d.SupportsThreads)
	return append(b, '}')
}

// MarshalJSON writes what AppendJSON does.
func (d Descriptor) MarshalJSON() ([]byte, error) { return d.AppendJSON(nil), nil }

// UnmarshalJSON reads what ParseDescriptor does.
func (d *Descriptor) UnmarshalJSON(data []byte) (err error) {
	*d, err = ParseDescriptor(bytes.TrimSpace(data))
	return err
}

// Supports reports whether the connector takes an op on this platform.
func (d Descriptor) Supports(op Op) bool {
	if len(d.SupportedOps) == 0 {
		return slices.Contains([]Op{OpSend, OpEdit, OpTyping, OpFollowUp}, op)
	}
	return slices.Contains(d.SupportedOps, op)
}

// Length is how long the platform takes a text to be.
func (d Descriptor) Length(text string) int {
	n := utf8.RuneCountInString(text)
	if d.LenUnit == UTF16 {
		for _, r := range text {
			if r > 0xffff {
				n++
			}
		}
	}
	return n
}

// PlatformEntry is what a connector knows of a platform.
type PlatformEntry struct {
	Name             string
	Label            string
	MaxMessageLength int
	Emoji            string
	PlatformHint     string
	PIISafe          bool
}

// ProjectionOptions are what a platform entry does not say. Begin with
// DefaultProjection.
type ProjectionOptions struct {
	LenUnit                LenUnit
	SupportsDraftStreaming bool
	SupportsEdit           bool
	SupportsThreads        bool
	MarkdownDialect        string
}

// DefaultProjection returns the options of a plain platform: lengths in code
// points, messages that can be edited, neither drafts nor threads, no markup.
func DefaultProjection() ProjectionOptions {
	return ProjectionOptions{LenUnit: Chars, SupportsEdit: true, MarkdownDialect: DefaultMarkdownDialect}
}

// Project makes the descriptor of a platform.
func Project(p PlatformEntry, o ProjectionOptions) Descriptor {
	return Descriptor{
		ContractVersion:        ContractVersion,
		Platform:               p.Name,
		Label:                  p.Label,
		MaxMessageLength:       p.MaxMessageLength,
		SupportsDraftStreaming: o.SupportsDraftStreaming,
		SupportsEdit:           o.SupportsEdit,
		SupportsThreads:        o.SupportsThreads,
		MarkdownDialect:        o.MarkdownDialect,
		LenUnit:                o.LenUnit,
		Emoji:                  p.Emoji,
		PlatformHint:           p.PlatformHint,
		PIISafe:                p.PIISafe,
	}.withDefaults()
}
