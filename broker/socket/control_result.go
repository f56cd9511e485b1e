package socket

import (
	"bytes"
	"encoding/json"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// result is what a method answers: its type, and its data as JSON on one line,
// if it has any.
type result struct {
	kind string
	data []byte
}

var okResult = result{kind: "ok"}

// dataResult is one whose data encoding/json writes.
func dataResult(kind string, data any) (result, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(data); err != nil {
		return result{}, err
	}
	return result{kind, bytes.TrimSuffix(b.Bytes(), []byte("\n"))}, nil
}

// reply is the line that answers the request of an id.
func (r result) reply(id string) []byte {
	b := make([]byte, 0, 64+len(id)+len(r.kind)+len(r.data))
	b = append(append(append(b, `{"kind":"reply","id":`...), id...), `,"result":{"type":`...)
	b = agentrelay.AppendString(b, r.kind)
	if r.data != nil {
		b = append(append(b, `,"data":`...), r.data...)
	}
	return append(b, "}}\n"...)
}

// noSuchAgent is what clients are told, whatever the broker says.
const noSuchAgent = "no such agent"

// errorReply is the line that says why the request of an id failed. Beside the
// text there is a code for programs.
func errorReply(id string, err error) []byte {
	e := agentrelay.Wrap(err)
	text := e.Message
	switch {
	case e.Code == agentrelay.CodeNoSuchAgent:
		text = noSuchAgent
	case text == "":
		text = string(e.Code)
	}
	b := append(append([]byte(`{"kind":"reply","id":`), id...), `,"error":`...)
	b = agentrelay.AppendString(b, text)
	b = agentrelay.AppendString(append(b, `,"code":`...), string(e.Code))
	if len(e.Suggestions) > 0 {
		b = append(b, `,"suggestions":[`...)
		for i, name := range e.Suggestions {
			if i > 0 {
				b = append(b, ',')
			}
			b = agentrelay.AppendString(b, name)
		}
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

// moment is a time as clients see it: null if it is zero.
type moment time.Time

// MarshalJSON writes the time as envelopes have it.
func (m moment) MarshalJSON() ([]byte, error) {
	if time.Time(m).IsZero() {
		return []byte("null"), nil
	}
	return append(agentrelay.AppendTime([]byte{'"'}, time.Time(m)), '"'), nil
}

type agentData struct {
	Agent          string    `json:"agent"`
	Description    *string   `json:"description"`
	AllowedTargets []string  `json:"allowed_targets"`
	MaxQueued      *int64    `json:"max_queued"`
	Registered     bool      `json:"registered"`
	Online         bool      `json:"online"`
	LastSeen       moment    `json:"last_seen"`
	Queued         int       `json:"queued"`
	Leased         int       `json:"leased"`
	Keys           []keyData `json:"keys"`
	LockedUntil    moment    `json:"locked_until"`
}

type keyData struct {
	ID       string `json:"key_id"`
	Created  moment `json:"created"`
	NotAfter moment `json:"not_after"`
	LastUsed moment `json:"last_used"`
}

func newAgentData(a broker.AgentInfo) agentData {
	d := agentData{
		Agent: a.Agent, AllowedTargets: a.AllowedTargets,
		Registered: a.Registered, Online: a.Online, LastSeen: moment(a.LastSeen),
		Queued: a.Queued, Leased: a.Leased, Keys: make([]keyData, len(a.Keys)), LockedUntil: moment(a.LockedUntil),
	}
	if a.Description != "" {
		d.Description = &a.Description
	}
	if a.MaxQueued != 0 {
		d.MaxQueued = &a.MaxQueued
	}
	for i, k := range a.Keys {
		d.Keys[i] = keyData{k.ID, moment(k.Created), moment(k.NotAfter), moment(k.LastUsed)}
	}
	return d
}

// newKeyData is a key with its secret.
type newKeyData struct {
	Agent  string `json:"agent"`
	ID     string `json:"key_id"`
	Secret string `json:"secret"`
	// NotAfter is nil where a key never has one.
	NotAfter *moment `json:"not_after,omitempty"`
}

// appendEnvelope appends a message on one line. JSON strings hold no raw line
// breaks, so those that are found separate values and may be spaces instead.
func appendEnvelope(b []byte, m *agentrelay.Message) []byte {
	start := len(b)
	b = m.AppendJSON(b)
	for i := start; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return b
}
