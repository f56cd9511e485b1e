package socket

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

const (
	eventHookFailed     broker.EventKind = "hook_failed"
	eventConfigReloaded broker.EventKind = "config_reloaded"
	eventLagged         broker.EventKind = "lagged"

	messageEvents = "message_"
)

// EventNames lists the events that can be subscribed to, in the order of
// PROTOCOL.md's table. "lagged" is not among them: it comes with any.
func EventNames() []string {
	return []string{
		"message_accepted", "message_delivered", "message_acked", "message_failed", "message_expired", "message_requeued",
		"agent_registered", "agent_online", "agent_offline", "agent_locked", "auth_failed",
		string(eventHookFailed), string(eventConfigReloaded),
	}
}

// event is one of the broker's, or one of a hook's.
type event struct {
	broker.Event
	hook, script string
}

// appendJSON appends the line that tells of an event, its number in the
// connection being seq.
func (e *event) appendJSON(b []byte, seq uint64) []byte {
	b = beginEvent(b, e.Kind, seq)
	b = append(agentrelay.AppendTime(append(b, `,"ts":"`...), e.At), '"')
	var members []string // names and values
	switch {
	case strings.HasPrefix(string(e.Kind), messageEvents):
		members = []string{"id", e.ID, "from", e.From, "to", e.To}
	case e.Kind == eventHookFailed:
		members = []string{"hook", e.hook, "script", e.script}
	case e.Kind != eventConfigReloaded:
		members = []string{"agent", e.Agent}
	}
	if e.Reason != "" {
		members = append(members, "reason", string(e.Reason))
	}
	for member := range slices.Chunk(members, 2) {
		b = agentrelay.AppendString(append(b, `,"`+member[0]+`":`...), member[1])
	}
	return append(b, "}\n"...)
}

// appendLagged appends the line that tells of missed events, the last of which
// had the number seq.
func appendLagged(b []byte, seq, missed uint64, at time.Time) []byte {
	b = beginEvent(b, eventLagged, seq)
	b = append(agentrelay.AppendTime(append(b, `,"ts":"`...), at), '"')
	return append(strconv.AppendUint(append(b, `,"missed":`...), missed, 10), "}\n"...)
}

func beginEvent(b []byte, kind broker.EventKind, seq uint64) []byte {
	b = agentrelay.AppendString(append(b, `{"kind":"event","event":`...), string(kind))
	return strconv.AppendUint(append(b, `,"seq":`...), seq, 10)
}

func fellBehind(missed uint64) string {
	return fmt.Sprintf("a client fell %d events behind", missed)
}
