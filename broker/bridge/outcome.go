package bridge

import (
	"cmp"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/store"
)

// Codes of receipts that no connector gave.
const (
	codeBadRequest    = "bad_request"
	codeUnsupportedOp = "unsupported_op"
	codeNoPlatform    = "no_such_platform"
	codeTooLarge      = "too_large"
)

// outcome is what became of a message to a connector.
type outcome struct {
	failed      bool
	error, code string
	// ambiguous says that it may have been carried out, or a part of it.
	ambiguous bool
	// messageIDs are the platform's, one for each part that was sent.
	messageIDs []string
	chatInfo   *connector.ChatInfo
}

// interruptedOutcome is that of a message that was being carried out when the
// process ended.
var interruptedOutcome = outcome{
	failed: true, ambiguous: true,
	error: "the broker ended while this was being sent; it may have arrived, and is not sent again by itself",
}

func refused(code, text string) outcome { return outcome{failed: true, code: code, error: text} }

// resulted is the outcome of a result.
func resulted(r connector.Result) outcome {
	o := outcome{failed: !r.Success, code: r.Code}
	if o.failed {
		o.error, o.ambiguous = cmp.Or(r.Error, "the connector gave no reason"), r.Ambiguous
	}
	return o
}

// of acknowledges a message with the outcome.
func (o outcome) of(agent, id string) store.Acknowledgement {
	return store.Acknowledgement{Agent: agent, ID: id, Failed: o.failed, Error: o.error, Body: o.body()}
}

// body is the receipt's.
func (o outcome) body() []byte {
	b := []byte(`{"status":"ok"`)
	if o.failed {
		b = agentrelay.AppendString([]byte(`{"status":"error","error":`), o.error)
	}
	if o.code != "" {
		b = agentrelay.AppendString(append(b, `,"code":`...), o.code)
	}
	if o.ambiguous {
		b = append(b, `,"ambiguous":true`...)
	}
	for i, id := range o.messageIDs {
		if i == 0 {
			b = append(b, `,"message_ids":[`...)
		} else {
			b = append(b, ',')
		}
		b = agentrelay.AppendString(b, id)
	}
	if len(o.messageIDs) > 0 {
		b = append(b, ']')
	}
	if o.chatInfo != nil {
		b = agentrelay.AppendString(append(b, `,"chat_info":{"name":`...), o.chatInfo.Name)
		b = append(agentrelay.AppendString(append(b, `,"type":`...), o.chatInfo.Type), '}')
	}
	return append(b, '}')
}
