package agentrelay

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep an object may be nested: more than messages need, and
// less than any JSON library reads, so that no message makes a page unreadable
// for its recipient.
const maxDepth = 64

// Object is a JSON object taken apart one level deep: each member's value is
// the text that was received. Names match exactly, in case too.
type Object []member

type member struct {
	name  string
	value json.RawMessage
}

// Get returns the raw value of a member; of several with one name the last.
func (o Object) Get(name string) (value json.RawMessage, ok bool) {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].name == name {
			return o[i].value, true
		}
	}
	return nil, false
}

// Text returns a string member. A member that is missing or null is absent;
// one of another type is CodeBadRequest.
func (o Object) Text(name string) (text string, present bool, err error) {
	raw, ok := o.Get(name)
	if !ok || string(raw) == "null" {
		return "", false, nil
	}
	if raw[0] != '"' {
		return "", false, badRequest(`"` + name + `" must be a string`)
	}
	return unquote(raw), true, nil
}

// ParseObject reads one JSON object (RFC 8259) in UTF-8 and nothing after it,
// nested at most maxDepth levels deep.
// The values share data's memory.
func ParseObject(data []byte) (Object, error) {
	o, depth, err := parseObject(data)
	if err == nil && depth > maxDepth {
		err = badRequest("the body is nested more than " + strconv.Itoa(maxDepth) + " levels deep")
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// parseObject is ParseObject for an object of any depth, which it tells.
func parseObject(data []byte) (o Object, depth int, err error) {
	if !utf8.Valid(data) {
		return nil, 0, badRequest("the body is not valid UTF-8; send JSON in UTF-8")
	}
	if !json.Valid(data) {
		return nil, 0, badRequest("the body is not one valid JSON value: " + syntaxProblem(data))
	}
	s := scanner{data: data}
	s.space()
	if s.data[s.at] != '{' {
		return nil, 0, badRequest("the body must be a JSON object, such as {}")
	}
	s.at++
	for s.space(); s.data[s.at] != '}'; s.space() {
		if s.data[s.at] == ',' {
			s.at++
			s.space()
		}
		name := s.value()
		s.space()
		s.at++ // the colon
		s.space()
		o = append(o, member{unquote(name), s.value()})
	}
	return o, s.depth + 1, nil
}

// syntaxProblem says what is wrong with JSON that is known to be invalid,
// without quoting it.
func syntaxProblem(data []byte) string {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err.Error()
	}
	return "unreadable"
}

// unquote reads a JSON string that is known to be valid.
func unquote(raw []byte) string {
	text := string(raw[1 : len(raw)-1])
	if !strings.Contains(text, `\`) {
		return text
	}
	_ = json.Unmarshal(raw, &text) // cannot fail: raw was validated
	return text
}

// scanner steps over JSON that is known to be valid.
type scanner struct {
	data []byte
	at   int
	// depth is that of the deepest value so far.
	depth int
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// value steps over one value and returns its text.
func (s *scanner) value() []byte {
	start, depth := s.at, 0
	for {
		switch s.data[s.at] {
		case '"':
			s.text()
		case '{', '[':
			depth++
			s.depth = max(s.depth, depth)
			s.at++
		case '}', ']':
			depth--
			s.at++
		case ',', ':', ' ', '\t', '\n', '\r':
			s.at++
		default:
			s.literal()
		}
		if depth == 0 {
			return s.data[start:s.at]
		}
	}
}

func (s *scanner) text() {
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
}

// literal steps over a number, true, false or null.
func (s *scanner) literal() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
		s.at++
	}
}
