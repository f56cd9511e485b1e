package connector

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Frame is one frame, of either direction.
type Frame interface {
	// AppendJSON appends the frame as one line of JSON, without its newline.
	AppendJSON(b []byte) []byte
}

// The frames that the relay sends.
type (
	// Hello tells of one identity that the relay has with the connector.
	Hello struct{ Platform, BotID string }
	// Outbound asks for an action.
	Outbound struct {
		RequestID string
		Action    Action
		Identity  Identity
	}
	// Interrupt asks the connector to break off what it does for a session.
	Interrupt struct{ SessionKey, Reason string }
	// GoingIdle announces that the relay is about to leave.
	GoingIdle struct{}
	// InboundAck says that a frame with this bufferId is stored.
	InboundAck struct{ BufferID string }
)

// The frames that the connector sends.
type (
	// Describe carries a descriptor.
	Describe struct{ Descriptor Descriptor }
	// Inbound carries an event of the platform.
	Inbound struct {
		// Event is a JSON object, stripped as StripTrust does.
		Event json.RawMessage
		// BufferID is to be acknowledged when the event is stored; "" if the
		// connector keeps no copy.
		BufferID string
		// Authenticated is whether the relay proved itself to whom this came
		// from. It is no part of the frame.
		Authenticated bool
	}
	// OutboundResult answers an Outbound.
	OutboundResult struct {
		RequestID string
		Result    Result
	}
	// InterruptInbound asks the relay to break off what goes on in a session.
	InterruptInbound struct {
		SessionKey, ChatID string
		// Authenticated is as in Inbound.
		Authenticated bool
	}
	// GoingIdleAck answers GoingIdle.
	GoingIdleAck struct{}
	// Passthrough carries an HTTP request that the platform made.
	Passthrough struct {
		Platform, BotID, Method, Path string
		Headers                       [][2]string
		// Body is empty when it came in no readable form.
		Body []byte
		// BufferID and Authenticated are as in Inbound.
		BufferID      string
		Authenticated bool
	}
)

// Unknown is a frame of a type that this package does not know.
type Unknown struct {
	Type string
	Raw  json.RawMessage
}

// Identity is an account that the relay has on a platform.
type Identity struct{ Platform, BotID string }

// FrameError says why a frame cannot be read. It quotes nothing of it.
type FrameError struct {
	// Type is the frame's type, if that could be read.
	Type string
	// BufferID is what to acknowledge so that the frame does not come again.
	BufferID string
	Err      error
}

func (e *FrameError) Error() string {
	if e.Type == "" {
		return "unreadable frame: " + e.Err.Error()
	}
	return fmt.Sprintf("unreadable frame of type %.40q: %v", e.Type, e.Err)
}

// Unwrap returns the cause.
func (e *FrameError) Unwrap() error { return e.Err }

// ParseFrame reads one frame of either direction. Members that it does not know
// are ignored, a frame of a type that it does not know is an Unknown. Every
// error is a *FrameError.
func ParseFrame(raw []byte) (Frame, error) {
	o, err := parseObject(raw)
	if err != nil {
		return nil, &FrameError{Err: err}
	}
	kind, err := o.require("type")
	if err != nil {
		return nil, &FrameError{Err: err}
	}
	read, known := frames[kind]
	if !known {
		return Unknown{kind, raw}, nil
	}
	frame, err := read(o)
	if err != nil {
		return nil, &FrameError{Type: kind, BufferID: o.text("bufferId"), Err: err}
	}
	return frame, nil
}

// frames reads each type of frame.
var frames = map[string]func(object) (Frame, error){
	"hello": func(o object) (Frame, error) {
		return Hello{o.text("platform"), o.label("botId")}, nil
	},
	"outbound": func(o object) (Frame, error) {
		id, err := o.require("requestId")
		if err != nil {
			return nil, err
		}
		raw, err := o.nested("action")
		if err != nil {
			return nil, err
		}
		action, err := ParseAction(raw)
		return Outbound{id, action, Identity{o.text("platform"), o.label("botId")}}, err
	},
	"interrupt": func(o object) (Frame, error) {
		key, err := o.require("session_key")
		return Interrupt{key, o.text("reason")}, err
	},
	"going_idle": func(object) (Frame, error) { return GoingIdle{}, nil },
	"inbound_ack": func(o object) (Frame, error) {
		id, err := o.require("bufferId")
		return InboundAck{id}, err
	},
	"descriptor": func(o object) (Frame, error) {
		raw, err := o.nested("descriptor")
		if err != nil {
			return nil, err
		}
		descriptor, err := ParseDescriptor(raw)
		return Describe{descriptor}, err
	},
	"inbound": func(o object) (Frame, error) { return parseInbound(o) },
	"outbound_result": func(o object) (Frame, error) {
		id, err := o.require("requestId")
		if err != nil {
			return nil, err
		}
		raw, err := o.nested("result")
		if err != nil {
			return nil, err
		}
		result, err := ParseResult(raw)
		return OutboundResult{id, result}, err
	},
	"interrupt_inbound": func(o object) (Frame, error) {
		key, err := o.require("session_key")
		return InterruptInbound{SessionKey: key, ChatID: o.label("chat_id")}, err
	},
	"going_idle_ack":      func(object) (Frame, error) { return GoingIdleAck{}, nil },
	"passthrough_forward": func(o object) (Frame, error) { return parsePassthrough(o) },
}

func parseInbound(o object) (Inbound, error) {
	event, err := o.nested("event")
	if err != nil {
		return Inbound{}, err
	}
	id, err := o.optional("bufferId")
	return Inbound{Event: StripTrust(event), BufferID: id}, err
}

func parsePassthrough(o object) (Passthrough, error) {
	raw, err := o.nested("forward")
	if err != nil {
		return Passthrough{}, err
	}
	id, err := o.optional("bufferId")
	if err != nil {
		return Passthrough{}, err
	}
	forward, err := parseObject(raw)
	if err != nil {
		return Passthrough{}, err
	}
	p := Passthrough{
		Platform: forward.text("platform"), BotID: forward.label("botId"),
		Method: forward.text("method"), Path: forward.text("path"), BufferID: id,
	}
	var headers []json.RawMessage
	if json.Unmarshal(forward["headers"], &headers) == nil {
		for _, raw := range headers {
			var pair []*string
			if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 && pair[0] != nil && pair[1] != nil {
				p.Headers = append(p.Headers, [2]string{*pair[0], *pair[1]})
			}
		}
	}
	if body, err := base64.StdEncoding.DecodeString(forward.text("bodyB64")); err == nil && len(body) > 0 {
		p.Body = body
	}
	return p, nil
}

// AppendJSON implements Frame.
func (f Hello) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"hello","platform":`, f.Platform)
	return append(appendMember(b, `,"botId":`, f.BotID), '}')
}

// AppendJSON implements Frame.
func (f Outbound) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"outbound","requestId":`, f.RequestID)
	b = f.Action.AppendJSON(append(b, `,"action":`...))
	b = appendMember(b, `,"platform":`, f.Identity.Platform)
	return append(appendMember(b, `,"botId":`, f.Identity.BotID), '}')
}

// AppendJSON implements Frame.
func (f Interrupt) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"interrupt","session_key":`, f.SessionKey)
	if f.Reason != "" {
		b = appendMember(b, `,"reason":`, f.Reason)
	}
	return append(b, '}')
}

// AppendJSON implements Frame.
func (GoingIdle) AppendJSON(b []byte) []byte { return append(b, `{"type":"going_idle"}`...) }

// AppendJSON implements Frame.
func (f InboundAck) AppendJSON(b []byte) []byte {
	return append(appendMember(b, `{"type":"inbound_ack","bufferId":`, f.BufferID), '}')
}

// AppendJSON implements Frame.
func (f Describe) AppendJSON(b []byte) []byte {
	return append(f.Descriptor.AppendJSON(append(b, `{"type":"descriptor","descriptor":`...)), '}')
}

// AppendJSON implements Frame.
func (f Inbound) AppendJSON(b []byte) []byte {
	b = appendCompact(append(b, `{"type":"inbound","event":`...), f.Event)
	return append(appendBufferID(b, f.BufferID), '}')
}

// AppendJSON implements Frame.
func (f OutboundResult) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"outbound_result","requestId":`, f.RequestID)
	return append(f.Result.AppendJSON(append(b, `,"result":`...)), '}')
}

// AppendJSON implements Frame.
func (f InterruptInbound) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"interrupt_inbound","session_key":`, f.SessionKey)
	return append(appendMember(b, `,"chat_id":`, f.ChatID), '}')
}

// AppendJSON implements Frame.
func (GoingIdleAck) AppendJSON(b []byte) []byte { return append(b, `{"type":"going_idle_ack"}`...) }

// AppendJSON implements Frame.
func (f Passthrough) AppendJSON(b []byte) []byte {
	b = appendMember(b, `{"type":"passthrough_forward","forward":{"platform":`, f.Platform)
	b = appendMember(b, `,"botId":`, f.BotID)
	b = appendMember(b, `,"method":`, f.Method)
	b = appendMember(b, `,"path":`, f.Path)
	b = append(b, `,"headers":[`...)
	for i, pair := range f.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = agentrelay.AppendString(append(b, '['), pair[0])
		b = append(agentrelay.AppendString(append(b, ','), pair[1]), ']')
	}
	b = append(b, `],"bodyB64":"`...)
	b = append(base64.StdEncoding.AppendEncode(b, f.Body), `"}`...)
	return append(appendBufferID(b, f.BufferID), '}')
}

// AppendJSON implements Frame.
func (f Unknown) AppendJSON(b []byte) []byte { return appendCompact(b, f.Raw) }

func appendBufferID(b []byte, id string) []byte {
	if id == "" {
		return b
	}
	return appendMember(b, `,"bufferId":`, id)
}
