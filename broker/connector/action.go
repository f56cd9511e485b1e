package connector

import (
	"encoding/json"
	"errors"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Op names what an action does.
type Op string

// The ops of contract version 1.
const (
	OpSend        Op = "send"
	OpEdit        Op = "edit"
	OpTyping      Op = "typing"
	OpGetChatInfo Op = "get_chat_info"
	OpFollowUp    Op = "follow_up"
)

// Action is what the relay asks a connector to do. Which fields count depends
// on Op:
//
//	send           ChatID, Content, ReplyTo, Metadata
//	edit           ChatID, MessageID, Content, Metadata
//	typing         ChatID, Metadata
//	get_chat_info  ChatID
//	follow_up      SessionKey, Kind, Content, Metadata
type Action struct {
	Op        Op
	ChatID    string
	MessageID string
	Content   string
	// ReplyTo is the platform's id of the message that a send answers; "" is
	// written as null.
	ReplyTo    string
	SessionKey string
	Kind       string
	// Metadata is a JSON object. When it is nil, {} is written; follow_up
	// leaves it out.
	Metadata json.RawMessage
}

// AppendJSON appends the action's JSON, without newlines.
func (a Action) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"op":`, string(a.Op))
	switch a.Op {
	case OpSend:
		b = appendMember(b, `,"chat_id":`, a.ChatID)
		b = appendMember(b, `,"content":`, a.Content)
		if a.ReplyTo == "" {
			b = append(b, `,"reply_to":null`...)
		} else {
			b = appendMember(b, `,"reply_to":`, a.ReplyTo)
		}
		b = a.appendMetadata(b)
	case OpEdit:
		b = appendMember(b, `,"chat_id":`, a.ChatID)
		b = appendMember(b, `,"message_id":`, a.MessageID)
		b = appendMember(b, `,"content":`, a.Content)
		b = a.appendMetadata(b)
	case OpTyping:
		b = appendMember(b, `,"chat_id":`, a.ChatID)
		b = a.appendMetadata(b)
	case OpGetChatInfo:
		b = appendMember(b, `,"chat_id":`, a.ChatID)
	case OpFollowUp:
		b = appendMember(b, `,"session_key":`, a.SessionKey)
		b = appendMember(b, `,"kind":`, a.Kind)
		b = appendMember(b, `,"content":`, a.Content)
		if a.Metadata != nil {
			b = a.appendMetadata(b)
		}
	}
	return append(b, '}')
}

func (a Action) appendMetadata(b []byte) []byte {
	b = append(b, `,"metadata":`...)
	if a.Metadata == nil {
		return append(b, "{}"...)
	}
	return appendCompact(b, a.Metadata)
}

// MarshalJSON writes what AppendJSON does.
func (a Action) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// ParseAction reads an action. Members that the op does not have are ignored;
// of an op that this package does not know everything known is read, so that a
// connector can answer it.
func ParseAction(raw []byte) (Action, error) {
	o, err := parseObject(raw)
	if err != nil {
		return Action{}, fmt.Errorf("read an action: %w", err)
	}
	op, err := o.require("op")
	if err != nil {
		return Action{}, fmt.Errorf("read an action: %w", err)
	}
	a := Action{
		Op: Op(op), ChatID: o.label("chat_id"), MessageID: o.label("message_id"), Content: o.text("content"),
		ReplyTo: o.label("reply_to"), SessionKey: o.text("session_key"), Kind: o.text("kind"),
	}
	if _, ok := o["metadata"]; ok {
		if a.Metadata, err = o.nested("metadata"); err != nil {
			return Action{}, fmt.Errorf("read an action: %w", err)
		}
	}
	return a, a.Validate()
}

// Validate reports what an action lacks to be carried out. An op that this
// package does not know lacks nothing.
func (a Action) Validate() error {
	missing := func(name string) error {
		return fmt.Errorf("the action %s needs %s", a.Op, name)
	}
	if a.Metadata != nil && (!json.Valid(a.Metadata) || !isObject(a.Metadata)) {
		return errors.New("an action's metadata must be a JSON object")
	}
	switch a.Op {
	case "":
		return errors.New("the action has no op")
	case OpSend, OpTyping, OpGetChatInfo, OpEdit:
		if a.ChatID == "" {
			return missing("chat_id")
		}
		if a.Op == OpEdit && a.MessageID == "" {
			return missing("message_id")
		}
	case OpFollowUp:
		if a.SessionKey == "" {
			return missing("session_key")
		}
		if a.Kind == "" {
			return missing("kind")
		}
	}
	return nil
}

// CodeEgressDeclined in a result says that the connector will not send this,
// by whatever op: it is final.
const CodeEgressDeclined = "egress_declined"

// Result is what became of an action. A failure is a result, too.
type Result struct {
	Success   bool
	MessageID string
	Error     string
	// Ambiguous says that the action may have been carried out even though
	// this is no success. It must not be repeated unasked.
	Ambiguous bool
	Code      string
	// Raw is the whole object as it was received; nil in a result that the
	// relay itself makes.
	Raw json.RawMessage
}

// ParseResult reads a result. Ids that are numbers are taken by their text.
func ParseResult(raw []byte) (Result, error) {
	o, err := parseObject(raw)
	if err != nil {
		return Result{}, fmt.Errorf("read a result: %w", err)
	}
	return Result{
		Success: o.flag("success"), MessageID: o.label("message_id"), Error: o.text("error"),
		Ambiguous: o.flag("ambiguous"), Code: o.label("code"), Raw: raw,
	}, nil
}

// AppendJSON appends the result as JSON: Raw if there is one, else the fields
// that are set.
func (r Result) AppendJSON(b []byte) []byte {
	if r.Raw != nil {
		return appendCompact(b, r.Raw)
	}
	if r.Success {
		b = append(b, `{"success":true`...)
	} else {
		b = append(b, `{"success":false`...)
	}
	if r.MessageID != "" {
		b = appendMember(b, `,"message_id":`, r.MessageID)
	}
	if r.Error != "" {
		b = appendMember(b, `,"error":`, r.Error)
	}
	if r.Ambiguous {
		b = append(b, `,"ambiguous":true`...)
	}
	if r.Code != "" {
		b = appendMember(b, `,"code":`, r.Code)
	}
	return append(b, '}')
}

// ChatInfo is what get_chat_info tells of a chat.
type ChatInfo struct{ Name, Type string }

// ChatInfo reads the answer to get_chat_info for a chat, whether it is nested
// in chat_info or not. The name defaults to the chat's id, the type to dm.
func (r Result) ChatInfo(chatID string) ChatInfo {
	o, err := parseObject(r.Raw)
	if err == nil {
		if nested, err := o.nested("chat_info"); err == nil {
			o, _ = parseObject(nested) // valid: it is part of Raw
		}
	}
	info := ChatInfo{Name: o.text("name"), Type: o.text("type")}
	if info.Name == "" {
		info.Name = chatID
	}
	if info.Type == "" {
		info.Type = "dm"
	}
	return info
}

// AppendResult appends a chat's info as the result of get_chat_info.
func (i ChatInfo) AppendResult(b []byte) []byte {
	b = append(b, `{"success":true,"chat_info":`...)
	b = agentrelay.AppendString(append(b, `{"name":`...), i.Name)
	b = agentrelay.AppendString(append(b, `,"type":`...), i.Type)
	return append(b, "}}"...)
}
