package broker

import (
	"errors"

	agentrelay "github.com/agent-relay/agent-relay"
)

// ReasonUnknownAgent stands for CodeUnknownAgent among the reasons.
const ReasonUnknownAgent = agentrelay.Reason(agentrelay.CodeUnknownAgent)

// Observer is told what no event tells, or not in a form to be counted. Its methods are called by
// requests, several at once, and must not block.
type Observer interface {
	// AuthFailed tells that credentials were refused, but for a lock.
	AuthFailed(reason agentrelay.Reason)
	// Locked tells that a request was refused because its agent is locked.
	Locked()
	// Duplicate tells that a message was sent again, Conflict that another one
	// was sent under a known id.
	Duplicate()
	Conflict()
	// Waiting tells that so many more polls and pulls wait for a message;
	// fewer, if negative.
	Waiting(more int)
}

// nobody is the default Observer.
type nobody struct{}

func (nobody) AuthFailed(agentrelay.Reason) {}
func (nobody) Locked()                      {}
func (nobody) Duplicate()                   {}
func (nobody) Conflict()                    {}
func (nobody) Waiting(int)                  {}

// observed tells why credentials were refused, and returns err. agent is whose
// they claim to be.
func (b *Broker) observed(agent string, err error) error {
	if err == nil {
		return nil
	}
	var e *agentrelay.Error
	if !errors.As(err, &e) {
		return err
	}
	reason := e.Reason
	switch e.Code {
	case agentrelay.CodeUnknownAgent:
		reason = ReasonUnknownAgent
	case agentrelay.CodeUnauthenticated:
	case agentrelay.CodeLocked:
		b.observer.Locked()
		return err
	default:
		return err
	}
	b.observer.AuthFailed(reason)
	if !agentrelay.ValidName(agent) {
		agent = ""
	}
	b.hub.tell(Event{Kind: AuthFailed, Agent: agent, Reason: reason, At: b.options.Clock.Now()})
	return err
}
