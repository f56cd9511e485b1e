package bridge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
)

// order is what an agent wants of a connector.
type order struct {
	op     connector.Op
	action connector.Action // of every op but send, complete
	// Of a send.
	payload                   connector.Payload
	chatID, threadID, replyTo string

	// answered is where the event came from that is replied to; platform and
	// botID are who is to do it, as far as the order itself says.
	answered        place
	platform, botID string
	// interrupt, unless nil, is wanted instead of an action.
	interrupt *connector.Interrupt
}

// reader takes members of a body, and keeps the first fault.
type reader struct {
	agentrelay.Object
	err error
}

// has reports whether a member is there and not null.
func (r *reader) has(name string) bool {
	raw, ok := r.Get(name)
	return ok && string(raw) != "null"
}

// text is a member that must be a string, if it is there.
func (r *reader) text(name string) string {
	text, _, err := r.Text(name)
	r.fault(err)
	return text
}

// id is a member that names something: a string or a number, if it is there.
func (r *reader) id(name string) string {
	if !r.has(name) {
		return ""
	}
	text := label(r.Object, name)
	if text == "" {
		r.fault(fmt.Errorf(`%q must be a string that is not empty`, name))
	}
	return text
}

// object is a member that must be an object, if it is there.
func (r *reader) object(name string) json.RawMessage {
	if !r.has(name) {
		return nil
	}
	raw, _ := r.Get(name)
	if raw[0] != '{' {
		r.fault(fmt.Errorf(`%q must be an object`, name))
		return nil
	}
	return raw
}

func (r *reader) fault(err error) {
	if r.err == nil {
		r.err = err
	}
}

// content is the text of a body, which may call it either name.
func (r *reader) content() string {
	if r.has("text") {
		return r.text("text")
	}
	return r.text("content")
}

// parseOrder reads a message's body. answered is the place of the event that the
// message replies to, if it does. Errors are for the sender.
func parseOrder(body []byte, answered place) (order, error) {
	object, err := agentrelay.ParseObject(body)
	if err != nil {
		return order{}, err
	}
	r := &reader{Object: object}
	if raw := r.object("interrupt"); raw != nil {
		o, err := parseInterrupt(raw)
		return o, cmp.Or(r.err, err)
	}
	o := order{
		op: connector.Op(cmp.Or(r.text("op"), string(connector.OpSend))), chatID: r.id("chat_id"), threadID: r.id("thread_id"),
		replyTo: r.id("reply_to"), answered: answered, platform: r.text("platform"), botID: r.id("bot_id"),
	}
	// A reply goes where the event came from. In another chat it is none there.
	if o.chatID == "" || o.chatID == answered.chatID {
		o.chatID, o.threadID = answered.chatID, cmp.Or(o.threadID, answered.threadID)
		if _, said := r.Get("reply_to"); !said {
			o.replyTo = answered.messageID
		}
	}
	if o.op == connector.OpSend {
		o.payload = r.payload()
		if o.chatID == "" {
			r.fault(errors.New(`"chat_id" is missing; name the chat, or reply to an event of this connector that is still kept`))
		}
		return o, r.err
	}
	o.action = r.action(o)
	if r.err == nil {
		r.err = o.action.Validate()
	}
	return o, r.err
}

func parseInterrupt(raw json.RawMessage) (order, error) {
	object, err := agentrelay.ParseObject(raw)
	if err != nil {
		return order{}, err
	}
	r := &reader{Object: object}
	interrupt := &connector.Interrupt{SessionKey: r.text("session_key"), Reason: r.text("reason")}
	if interrupt.SessionKey == "" {
		r.fault(errors.New(`"session_key" of the interrupt is missing`))
	}
	return order{interrupt: interrupt}, r.err
}

// payload is what a send holds.
func (r *reader) payload() connector.Payload {
	if raw := r.object("payload"); raw != nil {
		payload, err := connector.ParsePayload(raw)
		r.fault(err)
		return payload
	}
	text := r.content()
	if len(bytes.TrimSpace([]byte(text))) == 0 {
		r.fault(errors.New(`"text" is missing or blank; say something, or give a payload`))
	}
	return connector.Text(text)
}

// action is what is wanted by any op but send.
func (r *reader) action(o order) connector.Action {
	a := connector.Action{Op: o.op, ChatID: o.chatID, Metadata: r.object("metadata")}
	if a.Metadata == nil && o.threadID != "" && (a.Op == connector.OpTyping || a.Op == connector.OpEdit) {
		a.Metadata = append(agentrelay.AppendString([]byte(`{"thread_id":`), o.threadID), '}')
	}
	switch a.Op {
	case connector.OpEdit:
		a.MessageID, a.Content = r.id("message_id"), r.content()
	case connector.OpTyping, connector.OpGetChatInfo:
	case connector.OpFollowUp:
		a.SessionKey, a.Kind, a.Content = r.text("session_key"), r.text("kind"), r.content()
	default:
		r.fault(errors.New(`"op" must be send, edit, typing, get_chat_info or follow_up`))
	}
	return a
}

// actions are what carries the order out on a platform, in order. id is the
// message's.
func (o order) actions(id string, d connector.Descriptor) []connector.Action {
	if o.op != connector.OpSend {
		return []connector.Action{o.action}
	}
	intent := connector.Intent{
		IdempotencyKey: id, ChannelID: d.Platform, ConversationID: o.chatID,
		ReplyToID: o.replyTo, ThreadID: o.threadID, Payload: o.payload,
	}
	if o.payload.Kind() != connector.PayloadText {
		return []connector.Action{intent.Action()}
	}
	parts := split(o.payload.Content(), d)
	if len(parts) == 1 {
		return []connector.Action{intent.Action()}
	}
	var list []connector.Action
	for i, part := range parts {
		intent.IdempotencyKey, intent.Payload = fmt.Sprintf("%s#%d", id, i+1), connector.Text(part)
		list = append(list, intent.Action())
		intent.ReplyToID = "" // the first part is the reply
	}
	return list
}
