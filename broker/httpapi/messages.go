package httpapi

import (
	"net/http"
	"strconv"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// send accepts a message.
func (a *API) send(q *request) (answer, error) {
	m, err := agentrelay.ParseEnvelope(q.body, q.agent)
	if err != nil {
		return answer{}, err
	}
	sent, err := a.broker.Send(q.Context(), m)
	if err != nil {
		return answer{}, err
	}
	b := agentrelay.AppendString([]byte(`{"accepted":true,"id":`), sent.ID)
	b = strconv.AppendBool(append(b, `,"duplicate":`...), sent.Duplicate)
	b = append(appendPresence(append(b, `,"recipient":{`...), sent.Recipient), '}', '}')
	result := answer{status: http.StatusCreated, body: b}
	if sent.Duplicate {
		result.status = http.StatusOK
	}
	return result, nil
}

// poll lists messages after a cursor, waiting for some if it is asked to.
func (a *API) poll(q *request) (answer, error) {
	wait := parseWait(q.param("wait"))
	q.mayWait = wait > 0
	page, err := a.broker.Poll(q.Context(), store.PollQuery{
		Agent: q.agent, Since: q.param("since"),
		Limit: parseLimit(q.param("limit")), MaxBytes: parseMaxBytes(q.param("max_bytes")),
	}, wait)
	if err != nil {
		return answer{}, err
	}
	b := appendMessages(nil, page.Messages)
	b = append(b, `,"cursor":`...)
	if page.Cursor == "" {
		b = append(b, "null"...)
	} else {
		b = agentrelay.AppendString(b, page.Cursor)
	}
	if page.Reset {
		b = append(b, `,"reset":true`...)
	}
	return ok(append(b, '}'))
}

// acknowledge ends a message and sends its receipt.
func (a *API) acknowledge(q *request) (answer, error) {
	o, err := q.object(true)
	if err != nil {
		return answer{}, err
	}
	status, present, err := o.Text("status")
	if err != nil {
		return answer{}, err
	}
	if present && status != "ok" && status != "error" {
		return answer{}, badRequest(`"status" must be "ok" or "error"`)
	}
	text, _, err := o.Text("error")
	if err != nil {
		return answer{}, err
	}
	id, err := a.broker.Acknowledge(q.Context(), store.Acknowledgement{
		Agent: q.agent, ID: q.id, Failed: status == "error", Error: text,
	})
	if err != nil {
		return answer{}, err
	}
	b := agentrelay.AppendString([]byte(`{"accepted":true,"id":`), id)
	return answer{status: http.StatusCreated, body: append(b, '}')}, nil
}

// appendMessages begins an answer that lists messages.
func appendMessages(b []byte, list []agentrelay.Message) []byte {
	size := 16
	for i := range list {
		size += 512 + len(list[i].Body)
	}
	b = append(make([]byte, 0, len(b)+size), b...)
	b = append(b, `{"messages":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = list[i].AppendJSON(b)
	}
	return append(b, ']')
}

// appendCount ends an answer that counts what it lists.
func appendCount(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, `,"count":`...), int64(n), 10), '}')
}
