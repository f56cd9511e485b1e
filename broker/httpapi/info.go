package httpapi

import (
	"net/http"
	"strconv"

	agentrelay "github.com/agent-relay/agent-relay"
)

// info tells what answers here and what it can do.
func (a *API) info(*request) (answer, error) {
	b := agentrelay.AppendString([]byte(`{"protocol":`), agentrelay.ProtocolVersion)
	b = agentrelay.AppendString(append(b, `,"broker":"agent-relay","version":`...), a.options.Version)
	b = append(b, `,"capabilities":{"leaseDelivery":true,"requestReply":true,"filteredQuery":true,"sqlitePersistence":`...)
	b = strconv.AppendBool(b, a.options.Storage == "sqlite")
	b = append(b, `,"longPoll":true,"leaseRenewal":true,"signedResponses":true,"singleUseTimestamps":true},"storage":`...)
	return ok(append(agentrelay.AppendString(b, a.options.Storage), '}'))
}

// health tells whether the store can write.
func (a *API) health(q *request) (answer, error) {
	err := a.broker.Health(q.Context())
	b := strconv.AppendBool([]byte(`{"ok":`), err == nil)
	b = agentrelay.AppendString(append(b, `,"version":`...), a.options.Version)
	b = agentrelay.AppendString(append(b, `,"storage":`...), a.options.Storage)
	result := answer{status: http.StatusOK, body: append(b, '}')}
	if err != nil {
		a.log.Error("the store cannot write", "error", err)
		result.status = http.StatusServiceUnavailable
	}
	return result, nil
}

// register makes the agent known.
func (a *API) register(q *request) (answer, error) {
	if _, err := q.object(true); err != nil {
		return answer{}, err
	}
	self, err := a.broker.Register(q.Context(), q.agent)
	if err != nil {
		return answer{}, err
	}
	b := agentrelay.AppendString([]byte(`{"ok":true,"agent":`), q.agent)
	b = strconv.AppendInt(append(b, `,"ts":`...), self.LastSeen.Unix(), 10)
	return ok(append(b, '}'))
}

// peers lists the registered agents.
func (a *API) peers(*request) (answer, error) {
	b := []byte(`{"peers":[`)
	for i, p := range a.broker.Peers() {
		if i > 0 {
			b = append(b, ',')
		}
		b = agentrelay.AppendString(append(b, `{"agent":`...), p.Agent)
		b = append(appendPresence(append(b, ','), p), '}')
	}
	return ok(append(b, `]}`...))
}

// appendPresence appends the two members that tell when an agent was here.
func appendPresence(b []byte, p agentrelay.Peer) []byte {
	b = strconv.AppendBool(append(b, `"online":`...), p.Online)
	var seen int64
	if !p.LastSeen.IsZero() {
		seen = p.LastSeen.Unix()
	}
	return strconv.AppendInt(append(b, `,"lastSeen":`...), seen, 10)
}
