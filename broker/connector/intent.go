package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Durability is how much a sender cares that a message arrives.
type Durability string

// The durabilities of contract version 1.
const (
	Required   Durability = "required"
	BestEffort Durability = "best_effort"
	Disabled   Durability = "disabled"
)

// Intent is a message that is to go out, whatever the platform.
type Intent struct {
	IdempotencyKey string
	ChannelID      string
	ConversationID string
	ReplyToID      string
	ThreadID       string
	// Durability defaults to Required.
	Durability Durability
	Payload    Payload
}

// ParseIntent reads an intent from its JSON form.
func ParseIntent(raw []byte) (Intent, error) {
	i, err := parseIntent(raw)
	if err != nil {
		return Intent{}, fmt.Errorf("read an intent: %w", err)
	}
	return i, nil
}

func parseIntent(raw []byte) (i Intent, err error) {
	o, err := parseObject(raw)
	if err != nil {
		return Intent{}, err
	}
	var durability string
	for _, member := range []struct {
		name string
		to   *string
		read func(string) (string, error)
	}{
		{"idempotencyKey", &i.IdempotencyKey, o.require},
		{"channelId", &i.ChannelID, o.require},
		{"conversationId", &i.ConversationID, o.require},
		{"replyToId", &i.ReplyToID, o.optional},
		{"threadId", &i.ThreadID, o.optional},
		{"durability", &durability, o.optional},
	} {
		if *member.to, err = member.read(member.name); err != nil {
			return Intent{}, err
		}
	}
	if i.Durability = Durability(durability); durability == "" {
		i.Durability = Required
	}
	switch i.Durability {
	case Required, BestEffort, Disabled:
	default:
		return Intent{}, errors.New(`"durability" must be required, best_effort or disabled`)
	}
	i.Payload, err = ParsePayload(o["payload"])
	return i, err
}

// Action projects the intent to the send that carries it out.
func (i Intent) Action() Action {
	b := appendMember(nil, `{"idempotency_key":`, i.IdempotencyKey)
	b = appendMember(b, `,"channel_id":`, i.ChannelID)
	b = appendMember(b, `,"conversation_id":`, i.ConversationID)
	if i.ThreadID != "" {
		b = appendMember(b, `,"thread_id":`, i.ThreadID)
	}
	durability := i.Durability
	if durability == "" {
		durability = Required
	}
	b = appendMember(b, `,"durability":`, string(durability))
	if i.Payload.raw != nil {
		b = appendCompact(append(b, `,"payload":`...), i.Payload.raw)
	}
	return Action{
		Op: OpSend, ChatID: i.ConversationID, Content: i.Payload.content,
		ReplyTo: i.ReplyToID, Metadata: append(b, '}'),
	}
}

// Metadata is what a send projected from an intent says beside its text.
type Metadata struct {
	IdempotencyKey string
	ChannelID      string
	ConversationID string
	ThreadID       string
	Durability     Durability
	// Payload is the payload when it is more than text, else nil.
	Payload json.RawMessage
}

// ParseMetadata reads the metadata of an action; what is missing is "".
func ParseMetadata(raw []byte) (Metadata, error) {
	o, err := parseObject(raw)
	if err != nil {
		return Metadata{}, fmt.Errorf("read an action's metadata: %w", err)
	}
	return Metadata{
		IdempotencyKey: o.text("idempotency_key"), ChannelID: o.label("channel_id"),
		ConversationID: o.label("conversation_id"), ThreadID: o.label("thread_id"),
		Durability: Durability(o.text("durability")), Payload: o["payload"],
	}, nil
}

// PayloadKind is what a payload is.
type PayloadKind string

// The kinds of payload of contract version 1.
const (
	PayloadText               PayloadKind = "text"
	PayloadMedia              PayloadKind = "media"
	PayloadVoice              PayloadKind = "voice"
	PayloadFiles              PayloadKind = "files"
	PayloadPoll               PayloadKind = "poll"
	PayloadPresentationBlocks PayloadKind = "presentation_blocks"
	PayloadNativeChannelData  PayloadKind = "native_channel_data"
)

// Payload is what a message holds.
type Payload struct {
	kind    PayloadKind
	content string
	raw     json.RawMessage // nil when it is plain text
}

// Text is a payload of plain text.
func Text(text string) Payload { return Payload{kind: PayloadText, content: text} }

// Kind returns what the payload is.
func (p Payload) Kind() PayloadKind { return p.kind }

// Content is the payload as text, for connectors that know nothing else. It
// may be "".
func (p Payload) Content() string { return p.content }

// ParsePayload reads a payload: an object with a kind and the members of that
// kind. It goes out as it was given, members that this package does not know
// included; of a text only the text does.
func ParsePayload(raw []byte) (Payload, error) {
	o, err := parseObject(raw)
	if err != nil {
		return Payload{}, fmt.Errorf("read a payload: %w", err)
	}
	p := Payload{kind: PayloadKind(o.text("kind")), raw: bytes.Clone(raw)}
	switch p.kind {
	case PayloadText:
		p.raw = nil
		if _, ok := o["text"]; !ok {
			err = errors.New(`"text" is missing`)
			break
		}
		p.content, err = o.optional("text")
	case PayloadMedia:
		if p.content, err = o.optional("text"); err == nil {
			_, err = o.texts("media_urls")
		}
	case PayloadVoice:
		p.content, err = o.require("media_url")
	case PayloadFiles:
		var urls []string
		urls, err = o.texts("file_urls")
		p.content = strings.Join(urls, "\n")
	case PayloadPoll:
		if p.content, err = o.require("question"); err == nil {
			_, err = o.list("options")
		}
	case PayloadPresentationBlocks:
		_, err = o.list("blocks")
	case PayloadNativeChannelData:
		p.content, err = o.nativeContent()
	default:
		err = errors.New(`"kind" must be text, media, voice, files, poll, presentation_blocks or native_channel_data`)
	}
	if err != nil {
		return Payload{}, fmt.Errorf("read a payload: %w", err)
	}
	return p, nil
}

// texts is a list of strings that must be there.
func (o object) texts(name string) (list []string, err error) {
	if json.Unmarshal(o[name], &list) != nil {
		return nil, errors.New(`"` + name + `" must be a list of strings`)
	}
	return list, nil
}

// list is a list that must be there.
func (o object) list(name string) (list []json.RawMessage, err error) {
	if json.Unmarshal(o[name], &list) != nil {
		return nil, errors.New(`"` + name + `" must be a list`)
	}
	return list, nil
}

func (o object) nativeContent() (string, error) {
	raw, err := o.nested("data")
	if err != nil {
		return "", err
	}
	data, err := parseObject(raw)
	if err != nil {
		return "", err
	}
	if content := data.text("content"); content != "" {
		return content, nil
	}
	return data.text("text"), nil
}
