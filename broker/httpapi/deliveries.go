package httpapi

import (
	"net/http"
	"strconv"

	agentrelay "github.com/agent-relay/agent-relay"
)

// deliver takes an event from a connector. Its signature is not that of agents,
// and neither is its answer signed.
func (a *API) deliver(q *request, b *body) (answer, error) {
	id, duplicate, err := a.takeDelivery(q, b)
	if err != nil {
		return answer{}, a.refused(q, a.clientAddress(q.Request), err)
	}
	status := http.StatusCreated
	if duplicate {
		status = http.StatusOK
	}
	out := agentrelay.AppendString([]byte(`{"accepted":true,"id":`), id)
	out = append(strconv.AppendBool(append(out, `,"duplicate":`...), duplicate), '}')
	return answer{status: status, body: out}, nil
}

func (a *API) takeDelivery(q *request, b *body) (id string, duplicate bool, err error) {
	timestamp, signature := q.Header.Get(agentrelay.HeaderTimestamp), q.Header.Get(agentrelay.HeaderSignature)
	if timestamp == "" || signature == "" {
		return "", false, &agentrelay.Error{
			Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonMissingHeaders,
			Message: "sign the delivery: it needs the headers " + agentrelay.HeaderTimestamp + " and " + agentrelay.HeaderSignature,
		}
	}
	if q.body, err = b.all(q.ContentLength); err != nil {
		return "", false, err
	}
	return a.options.Deliver(q.Context(), q.id, timestamp, signature, q.body)
}
