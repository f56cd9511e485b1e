package bridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"

	agentrelay "github.com/agent-relay/agent-relay"
)

// place is where an event came from, as far as it says so.
type place struct {
	platform, botID, chatID, threadID, messageID string
}

// placeOf reads an event's place: the members of its source, or else its own,
// in either casing.
func placeOf(event agentrelay.Object) place {
	var source agentrelay.Object
	if raw, ok := event.Get("source"); ok {
		source, _ = agentrelay.ParseObject(raw) // what is no object has no members
	}
	find := func(names ...string) string {
		for _, o := range []agentrelay.Object{source, event} {
			for _, name := range names {
				if text := label(o, name); text != "" {
					return text
				}
			}
		}
		return ""
	}
	return place{
		platform: find("platform"), botID: find("bot_id", "botId"), chatID: find("chat_id", "chatId"),
		threadID: find("thread_id", "threadId"), messageID: find("message_id", "messageId"),
	}
}

// platformOf is the platform that a body names, "" if it names none.
func platformOf(body []byte) string {
	o, err := agentrelay.ParseObject(body)
	if err != nil {
		return ""
	}
	return placeOf(o).platform
}

// label is the text of a member that some write as a number, "" of any other.
func label(o agentrelay.Object, name string) string {
	raw, ok := o.Get(name)
	if !ok {
		return ""
	}
	if raw[0] == '"' {
		text, _, _ := o.Text(name)
		return text
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return ""
}

// identify makes the id under which something of a connector is stored. What
// the connector sends again has the same parts, and so the same id.
func identify(parts ...string) string {
	h := sha256.New()
	var b []byte
	for _, part := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	h.Write(b)
	return "connector:" + hex.EncodeToString(h.Sum(nil))
}

// eventID identifies an event by what the connector and the platform call it.
// Where one of them gives it no name, its content tells it from others, however
// that is spelled. What has no name at all is told apart by salt; without one it
// has no id.
func eventID(name, bufferID string, p place, event json.RawMessage, salt string) string {
	if bufferID == "" && p.messageID == "" && salt == "" {
		return ""
	}
	content := ""
	if bufferID == "" || p.messageID == "" {
		content = canonical(event)
	}
	if bufferID != "" || p.messageID != "" {
		salt = ""
	}
	return identify("event", name, bufferID, p.platform, p.chatID, p.messageID, content, salt)
}

// canonical writes JSON in one way, whatever its spaces, escapes and order.
func canonical(raw json.RawMessage) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return string(raw)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return string(raw)
	}
	return string(text)
}
