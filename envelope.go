package agentrelay

import "strings"

// maxReferenceLength bounds replyTo, rootId and parentId. They usually are
// message ids, but older clients put text of their own there.
const maxReferenceLength = 1024

// ParseEnvelope reads what an agent posts: an envelope, or the shorthand
// {to, body, …}. It fills in the defaults and checks all that needs no
// store: CodeBadRequest says which member is wrong and how. ID stays empty
// when the sender named none. Members that the broker sets, and unknown ones,
// are ignored. The body shares data's memory.
func ParseEnvelope(data []byte, sender string) (Message, error) {
	o, err := ParseObject(data)
	if err != nil {
		return Message{}, err
	}
	m := Message{From: sender, Status: StatusQueued}
	for _, read := range []func(Object, *Message) error{
		readID, readTo, readType, readKind, readFrom, readReferences, readAck,
	} {
		if err := read(o, &m); err != nil {
			return Message{}, err
		}
	}
	if m.To == sender {
		return Message{}, badRequest(`"to" is the sender itself; an agent cannot send to itself`)
	}
	m.Body, _ = o.Get("body")
	if m.Body == nil {
		m.Body = []byte(`{}`)
	}
	return m, nil
}

func readID(o Object, m *Message) error {
	id, present, err := o.Text("id")
	if err == nil && present && !ValidID(id) {
		err = badRequest(`"id" must be 1 to 128 of A-Z a-z 0-9 . _ ~ : @ ! $ & ' ( ) * + , ; = / - with no empty, "." or ".." segment, and not start with "cursor:" or "connector:"`)
	}
	m.ID = id
	return err
}

func readTo(o Object, m *Message) error {
	to, present, err := o.Text("to")
	switch {
	case err != nil:
		return err
	case !present:
		return badRequest(`"to" is missing; name the recipient`)
	case !ValidName(to):
		return badRequest(`"to" must be an agent name: 1 to 64 of A-Z a-z 0-9 _ . -`)
	}
	m.To = to
	return nil
}

func readType(o Object, m *Message) error {
	text, present, err := o.Text("type")
	m.Type = TypeMessage
	if present {
		m.Type = Type(text)
	}
	if err == nil && m.Type != TypeMessage && m.Type != TypeAck {
		err = badRequest(`"type" must be "message" or "ack"`)
	}
	return err
}

func readKind(o Object, m *Message) error {
	text, present, err := o.Text("kind")
	m.Kind = KindMessage
	if present {
		m.Kind = Kind(text)
	}
	if err == nil && m.Kind != KindMessage && m.Kind != KindRequest && m.Kind != KindReply {
		err = badRequest(`"kind" must be "message", "request" or "reply"`)
	}
	return err
}

// readFrom holds both names that a caller may give itself against the one that
// signed.
func readFrom(o Object, m *Message) error {
	for _, name := range []string{"from", "agent"} {
		text, present, err := o.Text(name)
		if err != nil {
			return err
		}
		if present && text != m.From {
			return badRequest(`"` + name + `" must be the agent that signed the request; leave it out`)
		}
	}
	return nil
}

func readReferences(o Object, m *Message) error {
	for _, r := range []struct {
		name string
		to   *string
	}{{"replyTo", &m.ReplyTo}, {"rootId", &m.RootID}, {"parentId", &m.ParentID}} {
		text, _, err := o.Text(r.name)
		if err != nil {
			return err
		}
		if len(text) > maxReferenceLength || strings.ContainsFunc(text, isControl) {
			return badRequest(`"` + r.name + `" must be a message id`)
		}
		*r.to = text
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }

func readAck(o Object, m *Message) error {
	raw, ok := o.Get("ack")
	switch {
	case !ok || string(raw) == "false":
		return nil
	case string(raw) == "true":
		m.Ack = true
		return nil
	}
	return badRequest(`"ack" must be true or false`)
}
