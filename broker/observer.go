package broker

import (
	"errors"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Observer is told what no event of the store tells. Its methods are called by
// requests, several at once, and must not block.
type Observer interface {
	// AuthFailed tells that credentials were refused as unauthenticated.
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

// observed tells the observer why credentials were refused, and returns err.
func (b *Broker) observed(err error) error {
	if err == nil {
		return nil
	}
	var e *agentrelay.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case agentrelay.CodeUnauthenticated:
		b.observer.AuthFailed(e.Reason)
	case agentrelay.CodeLocked:
		b.observer.Locked()
	}
	return err
}
