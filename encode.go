package agentrelay

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// timeLayout is ISO 8601 with milliseconds; UTC times end in Z.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// AppendTime appends t in the envelope's form, without quotes.
func AppendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, timeLayout)
}

// AppendJSON appends the envelope as JSON, its members in the protocol's
// order, its body byte for byte. (encoding/json would compact and re-escape
// the body of a json.Marshaler, so answers are written with this.)
func (m *Message) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"id":`, m.ID)
	b = appendMember(b, `,"from":`, m.From)
	b = appendMember(b, `,"to":`, m.To)
	b = append(b, `,"ts":"`...)
	b = AppendTime(b, m.TS)
	b = append(b, '"')
	b = appendMember(b, `,"type":`, string(m.Type))
	b = append(b, `,"body":`...)
	if len(m.Body) == 0 {
		b = append(b, `{}`...)
	} else {
		b = append(b, m.Body...)
	}
	b = appendNullable(b, `,"replyTo":`, m.ReplyTo)
	b = append(b, `,"ack":`...)
	b = strconv.AppendBool(b, m.Ack)
	b = appendMember(b, `,"kind":`, string(m.Kind))
	b = appendNullable(b, `,"rootId":`, m.RootID)
	b = appendNullable(b, `,"parentId":`, m.ParentID)
	b = appendMember(b, `,"status":`, string(m.Status))
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(m.Attempts), 10)
	b = append(b, `,"leaseUntil":`...)
	if m.LeaseUntil.IsZero() {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, m.LeaseUntil.UnixMilli(), 10)
	}
	b = appendNullable(b, `,"leaseId":`, m.LeaseID)
	if m.Error != "" {
		b = appendMember(b, `,"error":`, m.Error)
	}
	return append(b, '}')
}

func appendMember(b []byte, name, value string) []byte {
	return AppendString(append(b, name...), value)
}

func appendNullable(b []byte, name, value string) []byte {
	if value == "" {
		return append(append(b, name...), "null"...)
	}
	return appendMember(b, name, value)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string (RFC 8259 section 7), escaping no
// more than that requires. Invalid UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// UnmarshalJSON reads an envelope as the broker writes it, or the shorter
// entry of a status answer. Unknown members are ignored; names match exactly,
// in case too.
func (m *Message) UnmarshalJSON(data []byte) error {
	o, _, err := parseObject(data)
	if err != nil {
		// Not wrapped: it is no fault of a request's.
		return fmt.Errorf("read an envelope: %v", err)
	}
	var read Message
	var ts, deliveredAt *time.Time
	var leaseUntil *int64
	for _, member := range []struct {
		name string
		to   any
	}{
		{"id", &read.ID},
		{"from", &read.From},
		{"to", &read.To},
		{"ts", &ts},
		{"type", &read.Type},
		{"body", &read.Body},
		{"replyTo", &read.ReplyTo},
		{"ack", &read.Ack},
		{"kind", &read.Kind},
		{"rootId", &read.RootID},
		{"parentId", &read.ParentID},
		{"status", &read.Status},
		{"attempts", &read.Attempts},
		{"leaseUntil", &leaseUntil},
		{"leaseId", &read.LeaseID},
		{"error", &read.Error},
		{"deliveredAt", &deliveredAt},
	} {
		raw, ok := o.Get(member.name)
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, member.to); err != nil {
			return fmt.Errorf("read an envelope: %q: %w", member.name, err)
		}
	}
	if ts != nil {
		read.TS = *ts
	}
	if deliveredAt != nil {
		read.DeliveredAt = *deliveredAt
	}
	if leaseUntil != nil {
		read.LeaseUntil = time.UnixMilli(*leaseUntil)
	}
	*m = read
	return nil
}

// MarshalJSON writes the envelope of AppendJSON, plus deliveredAt when it is
// known. encoding/json compacts the body of what this returns; where bytes
// matter, use AppendJSON.
func (m Message) MarshalJSON() ([]byte, error) {
	b := m.AppendJSON(nil)
	if !m.DeliveredAt.IsZero() {
		b = append(b[:len(b)-1], `,"deliveredAt":"`...)
		b = append(AppendTime(b, m.DeliveredAt), `"}`...)
	}
	return b, nil
}
