package httpapi

import (
	"strconv"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// pull leases messages. Leases whose answer does not reach the client are
// given back.
func (a *API) pull(q *request) (answer, error) {
	o, err := q.object(true)
	if err != nil {
		return answer{}, err
	}
	lease, err := parseLease(o, a.options.Lease)
	if err != nil {
		return answer{}, err
	}
	wait := parseWait(member(o, "waitSeconds"))
	q.mayWait = wait > 0
	leased, err := a.broker.Pull(q.Context(), store.LeaseRequest{
		Agent: q.agent, For: lease,
		Limit: parseLimit(member(o, "limit")), MaxBytes: parseMaxBytes(member(o, "max_bytes")),
	}, wait)
	if err != nil {
		return answer{}, err
	}
	list := make([]agentrelay.Message, len(leased))
	for i, l := range leased {
		list[i] = l.Message
	}
	result, err := ok(appendCount(appendMessages(nil, list), len(list)))
	if len(leased) > 0 {
		result.sent = func(reached bool) {
			if reached {
				a.broker.HandedOver(leased)
			} else {
				a.broker.Return(q.Context(), q.agent, leased)
			}
		}
	}
	return result, err
}

// settle ends a lease.
func (a *API) settle(q *request) (answer, error) {
	s := store.Settlement{Agent: q.agent}
	o, err := q.object(false)
	if err != nil {
		return answer{}, err
	}
	if s.ID, err = parseID(o, "messageId"); err != nil {
		return answer{}, err
	}
	if s.LeaseID, err = parseLeaseID(o); err != nil {
		return answer{}, err
	}
	outcome, _, err := o.Text("outcome")
	if err != nil {
		return answer{}, err
	}
	s.Outcome = agentrelay.Outcome(outcome)
	switch s.Outcome {
	case agentrelay.OutcomeCompleted:
		// Older clients send an error with this outcome too; it says nothing.
	case agentrelay.OutcomeRetry:
		if s.Error, _, err = o.Text("error"); err != nil {
			return answer{}, err
		}
	default:
		return answer{}, badRequest(`"outcome" must be "completed" or "retry"`)
	}
	settled, err := a.broker.Settle(q.Context(), s)
	if err != nil {
		return answer{}, err
	}
	b := agentrelay.AppendString([]byte(`{"ok":true,"status":`), string(settled.Status))
	b = strconv.AppendInt(append(b, `,"attempts":`...), int64(settled.Attempts), 10)
	return ok(append(b, '}'))
}

// renew prolongs a lease.
func (a *API) renew(q *request) (answer, error) {
	r := store.Renewal{Agent: q.agent}
	o, err := q.object(false)
	if err != nil {
		return answer{}, err
	}
	if r.ID, err = parseID(o, "messageId"); err != nil {
		return answer{}, err
	}
	if r.LeaseID, err = parseLeaseID(o); err != nil {
		return answer{}, err
	}
	if r.For, err = parseLease(o, a.options.Lease); err != nil {
		return answer{}, err
	}
	until, err := a.broker.Renew(q.Context(), r)
	if err != nil {
		return answer{}, err
	}
	b := strconv.AppendInt([]byte(`{"ok":true,"leaseUntil":`), until.UnixMilli(), 10)
	return ok(append(b, '}'))
}

func parseLeaseID(o agentrelay.Object) (string, error) {
	id, present, err := o.Text("leaseId")
	if err == nil && (!present || id == "") {
		err = badRequest(`"leaseId" is missing; it is in the answer of the pull that leased the message`)
	}
	return id, err
}
