package httpapi

import (
	"strconv"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// status tells where messages stand that the agent sent or received.
func (a *API) status(q *request) (answer, error) {
	o, err := q.object(false)
	if err != nil {
		return answer{}, err
	}
	ids, err := parseIDs(o)
	if err != nil {
		return answer{}, err
	}
	found, err := a.broker.Messages(q.Context(), q.agent, ids)
	if err != nil {
		return answer{}, err
	}
	b := []byte(`{"messages":[`)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = agentrelay.AppendString(append(b, `{"id":`...), id)
		if m, known := found[id]; known {
			b = appendStatus(b, m)
		} else {
			b = append(b, `,"status":"not_found","attempts":0}`...)
		}
	}
	return ok(append(b, `]}`...))
}

func appendStatus(b []byte, m agentrelay.Message) []byte {
	b = agentrelay.AppendString(append(b, `,"status":`...), string(m.Status))
	b = strconv.AppendInt(append(b, `,"attempts":`...), int64(m.Attempts), 10)
	b = append(agentrelay.AppendTime(append(b, `,"ts":"`...), m.TS), '"')
	b = agentrelay.AppendString(append(b, `,"from":`...), m.From)
	b = agentrelay.AppendString(append(b, `,"to":`...), m.To)
	b = agentrelay.AppendString(append(b, `,"kind":`...), string(m.Kind))
	if !m.DeliveredAt.IsZero() {
		b = append(agentrelay.AppendTime(append(b, `,"deliveredAt":"`...), m.DeliveredAt), '"')
	}
	return append(b, '}')
}

// recent lists the agent's inbox, newest first.
func (a *API) recent(q *request) (answer, error) {
	o, err := q.object(true)
	if err != nil {
		return answer{}, err
	}
	return a.list(q, o, store.Filter{})
}

// query lists what a filter picks of the agent's inbox, newest first.
func (a *API) query(q *request) (answer, error) {
	o, err := q.object(true)
	if err != nil {
		return answer{}, err
	}
	f, err := parseFilter(o)
	if err != nil {
		return answer{}, err
	}
	return a.list(q, o, f)
}

func (a *API) list(q *request, o agentrelay.Object, f store.Filter) (answer, error) {
	f.Agent = q.agent
	f.Limit, f.MaxBytes = parseLimit(member(o, "limit")), parseMaxBytes(member(o, "max_bytes"))
	list, err := a.broker.Query(q.Context(), f)
	if err != nil {
		return answer{}, err
	}
	return ok(appendCount(appendMessages(nil, list), len(list)))
}

func parseFilter(o agentrelay.Object) (store.Filter, error) {
	var text [4]string
	for i, name := range []string{"kind", "status", "from", "to"} {
		var err error
		if text[i], _, err = o.Text(name); err != nil {
			return store.Filter{}, err
		}
	}
	f := store.Filter{Kind: agentrelay.Kind(text[0]), Status: agentrelay.Status(text[1]), From: text[2], To: text[3]}
	switch f.Kind {
	case "", agentrelay.KindMessage, agentrelay.KindRequest, agentrelay.KindReply:
	default:
		return store.Filter{}, badRequest(`"kind" must be "message", "request" or "reply"`)
	}
	switch f.Status {
	case "", agentrelay.StatusQueued, agentrelay.StatusLeased, agentrelay.StatusDone, agentrelay.StatusFailed, agentrelay.StatusExpired:
		return f, nil
	}
	return store.Filter{}, badRequest(`"status" must be "queued", "leased", "done", "failed" or "expired"`)
}
