package connector

import (
	"bytes"
	"encoding/json"
)

// StripTrust removes from an event what only the relay may say of it, namely
// delivered_via_upstream_relay and deliveredViaUpstreamRelay inside source and
// access, however they are spelled and however often. All else stays byte for
// byte, unless something was removed beside it. What is no object stays as it
// is.
func StripTrust(event json.RawMessage) json.RawMessage {
	return rewrite(event, func(name string, value json.RawMessage) (json.RawMessage, bool) {
		if name != "source" && name != "access" {
			return value, true
		}
		return rewrite(value, func(name string, value json.RawMessage) (json.RawMessage, bool) {
			return value, name != "delivered_via_upstream_relay" && name != "deliveredViaUpstreamRelay"
		}), true
	})
}

// rewrite puts each member of an object through change, which returns its new
// value and whether to keep it. The object is written anew only if something
// changed.
func rewrite(raw json.RawMessage, change func(string, json.RawMessage) (json.RawMessage, bool)) json.RawMessage {
	if !isObject(raw) {
		return raw
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if _, err := decoder.Token(); err != nil {
		return raw
	}
	out, changed := []byte{'{'}, false
	for decoder.More() {
		before := decoder.InputOffset()
		name, err := decoder.Token()
		if err != nil {
			return raw
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return raw
		}
		text, _ := name.(string)
		after, keep := change(text, value)
		changed = changed || !keep || len(after) != len(value)
		if !keep {
			continue
		}
		// The text from the last member's end to this value, less the comma.
		member := raw[before : decoder.InputOffset()-int64(len(value))]
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, bytes.TrimLeft(member, " \t\r\n,")...), after...)
	}
	if !changed {
		return raw
	}
	return append(out, '}')
}
