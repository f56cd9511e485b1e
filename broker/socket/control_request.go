package socket

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// controlRequest is what a line asks for. id is a JSON number as the client
// wrote it; empty if none can be read.
type controlRequest struct {
	id, method string
	params     params
}

// params are the members of a request's params. Names match exactly, in case
// too; of several with one name the last counts; others are ignored.
type params struct{ agentrelay.Object }

// parseControlRequest reads a line. On an error the id is set if it could be
// read all the same.
func parseControlRequest(line []byte) (controlRequest, error) {
	var r controlRequest
	if !utf8.Valid(line) {
		return r, invalid("the line is not valid UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil || members == nil {
		r.id = readableID(line)
		var wrong *json.UnmarshalTypeError
		if err == nil || errors.As(err, &wrong) {
			return r, invalid(`the line must be an object, {"id":…,"method":…,"params":{…}}`)
		}
		return r, invalid("the line is not valid JSON: %v", err)
	}
	if r.id = number(members["id"]); r.id == "" {
		return r, invalid(`"id" must be a number`)
	}
	var name *string
	if err := json.Unmarshal(orNull(members["method"]), &name); err != nil || name == nil {
		return r, invalid(`"method" must be a string`)
	}
	r.method = *name
	raw := members["params"]
	if raw == nil || string(raw) == "null" {
		return r, nil
	}
	if raw[0] != '{' {
		return r, invalid(`"params" must be an object`)
	}
	o, err := agentrelay.ParseObject(raw)
	if err != nil {
		return r, invalid(`"params" cannot be read: they are nested too deep`)
	}
	r.params = params{o}
	return r, nil
}

// number is a JSON number's text; empty for anything else.
func number(raw json.RawMessage) string {
	if len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9') {
		return string(raw)
	}
	return ""
}

// readableID finds the id in a line that is no JSON, if it stands before what
// is wrong.
func readableID(line []byte) (id string) {
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return id
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return id
		}
		if name == "id" {
			id = number(value)
		}
	}
	return id
}

// quoted is a text that came from outside, made short and printable.
func quoted(text string) string { return fmt.Sprintf("%.64q", text) }

func invalid(format string, args ...any) *agentrelay.Error {
	return &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// given returns a member that is there and not null.
func (p params) given(name string) (json.RawMessage, bool) {
	raw, ok := p.Get(name)
	return raw, ok && string(raw) != "null"
}

// agent reads a member that must be an agent's name.
func (p params) agent(name string) (string, error) {
	text, present, err := p.Text(name)
	switch {
	case err != nil:
		return "", err
	case !present:
		return "", invalid("%q is missing; name the agent", name)
	case !agentrelay.ValidName(text):
		return "", invalid("%q must be an agent name: 1 to %d of A-Z a-z 0-9 _ . -", name, agentrelay.MaxNameLength)
	}
	return text, nil
}

// text reads a member that must be a text that is not empty.
func (p params) text(name string) (string, error) {
	text, _, err := p.Text(name)
	if err == nil && text == "" {
		err = invalid("%q is missing", name)
	}
	return text, err
}

// messageID reads the member message_id.
func (p params) messageID() (string, error) {
	id, err := p.text("message_id")
	if err == nil && !agentrelay.WellFormedID(id) {
		err = invalid(`"message_id" must be a message id`)
	}
	return id, err
}

// integer reads a whole number within bounds; nil if it is not there.
func (p params) integer(name string, low, high int64) (*int64, error) {
	raw, ok := p.given(name)
	if !ok {
		return nil, nil
	}
	return parseInteger(name, raw, low, high)
}

func parseInteger(name string, raw json.RawMessage, low, high int64) (*int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < low || n > high {
		return nil, invalid("%q must be a whole number from %d to %d", name, low, high)
	}
	return &n, nil
}

// names reads a list of agents' names.
func parseNames(name string, raw json.RawMessage) (*[]string, error) {
	list, err := parseTexts(name, raw)
	if err != nil {
		return nil, err
	}
	for i, text := range list {
		switch {
		case !agentrelay.ValidName(text):
			return nil, invalid("%q must hold agent names: 1 to %d of A-Z a-z 0-9 _ . -", name, agentrelay.MaxNameLength)
		case slices.Contains(list[:i], text):
			return nil, invalid("%q names %s twice", name, text)
		}
	}
	return &list, nil
}

func parseTexts(name string, raw json.RawMessage) ([]string, error) {
	var list []*string
	if json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
		return nil, invalid("%q must be a list of texts", name)
	}
	texts := make([]string, len(list))
	for i, text := range list {
		texts[i] = *text
	}
	return texts, nil
}

// events reads which events are meant: those that are named, else all.
func (p params) events() ([]string, error) {
	raw, ok := p.given("events")
	if !ok {
		return EventNames(), nil
	}
	names, err := parseTexts("events", raw)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.Contains(EventNames(), name) {
			return nil, invalid("there is no event %s; there are %s", quoted(name), strings.Join(EventNames(), ", "))
		}
	}
	return names, nil
}

// patch reads how an agent is to change. Missing members change nothing; null
// removes what is there.
func (p params) patch() (broker.AgentPatch, error) {
	var patch broker.AgentPatch
	err := errors.Join(
		readPatch(p, "description", &patch.Description, func(name string, raw json.RawMessage) (*string, error) {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				return nil, invalid("%q must be a string", name)
			}
			return &text, nil
		}),
		readPatch(p, "allowed_targets", &patch.AllowedTargets, parseNames),
		readPatch(p, "max_queued", &patch.MaxQueued, func(name string, raw json.RawMessage) (*int64, error) {
			return parseInteger(name, raw, 1, 1<<53)
		}),
	)
	if err != nil {
		var first *agentrelay.Error
		errors.As(err, &first)
		return broker.AgentPatch{}, first
	}
	return patch, nil
}

func readPatch[T any](p params, name string, to *broker.Patch[T], parse func(string, json.RawMessage) (*T, error)) error {
	raw, present := p.Get(name)
	if !present {
		return nil
	}
	to.Set = true
	if string(raw) == "null" {
		return nil
	}
	value, err := parse(name, raw)
	to.Value = value
	return err
}

// instant reads a point in time; zero if it is not there.
func (p params) instant(name string) (time.Time, error) {
	text, present, err := p.Text(name)
	if err != nil || !present {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, invalid("%q must be a time such as 2027-01-31T12:00:00Z", name)
	}
	return at, nil
}
