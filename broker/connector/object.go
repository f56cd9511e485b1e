package connector

import (
	"bytes"
	"encoding/json"
	"errors"

	agentrelay "github.com/agent-relay/agent-relay"
)

// object is a JSON object by its members' exact names; of several with one
// name the last counts. A value that is null is as good as missing.
type object map[string]json.RawMessage

var errNoObject = errors.New("it is not a JSON object")

// parseObject reads one object. Its error quotes nothing of data but single
// characters.
func parseObject(data []byte) (object, error) {
	if !isObject(data) {
		return nil, errNoObject
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	for name, value := range o {
		if string(value) == "null" {
			delete(o, name)
		}
	}
	return o, nil
}

// isObject tells an object from any other valid JSON value.
func isObject(raw []byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == '{'
}

// text is a string member, "" unless it is one.
func (o object) text(name string) string {
	var text string
	if json.Unmarshal(o[name], &text) != nil {
		return ""
	}
	return text
}

// label is text of a member that some write as a number.
func (o object) label(name string) string {
	var number json.Number
	if raw := o[name]; len(raw) > 0 && raw[0] != '"' && json.Unmarshal(raw, &number) == nil {
		return number.String()
	}
	return o.text(name)
}

func (o object) flag(name string) bool {
	return string(o[name]) == "true"
}

// require is a string member that must be there; "" is not.
func (o object) require(name string) (string, error) {
	text := o.text(name)
	if text == "" {
		return "", errors.New(`"` + name + `" must be a string that is not empty`)
	}
	return text, nil
}

// optional is a string member that may be missing, but nothing else.
func (o object) optional(name string) (string, error) {
	raw, ok := o[name]
	if !ok {
		return "", nil
	}
	if raw[0] != '"' {
		return "", errors.New(`"` + name + `" must be a string`)
	}
	return o.text(name), nil
}

// nested is a member that must be an object.
func (o object) nested(name string) (json.RawMessage, error) {
	if raw, ok := o[name]; ok && isObject(raw) {
		return raw, nil
	}
	return nil, errors.New(`"` + name + `" must be an object`)
}

// appendMember appends a string member after its comma, name and colon.
func appendMember(b []byte, name, value string) []byte {
	return agentrelay.AppendString(append(b, name...), value)
}

// appendCompact appends JSON without the spaces between its parts, newlines
// among them, which would end a frame. What is no JSON becomes null.
func appendCompact(b, raw []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return append(b, "null"...)
	}
	return append(b, compact.Bytes()...)
}
