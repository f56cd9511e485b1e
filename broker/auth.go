package broker

import (
	agentrelay "github.com/agent-relay/agent-relay"
)

// Credentials are what a request says of its sender, before its body is read.
type Credentials struct {
	Agent, Timestamp, Signature string
	// Address is the client's network address, without port.
	Address string
}

// Challenge is a request whose credentials may be verified.
type Challenge struct {
	broker    *Broker
	given     Credentials
	timestamp agentrelay.Timestamp
}

// Challenge checks all of a request's credentials that needs no body: that
// they are there, the agent's name, its lock and the form of the timestamp
// (PROTOCOL.md, "Order of checks").
func (b *Broker) Challenge(c Credentials) (Challenge, error) {
	challenge, err := b.challenge(c)
	return challenge, b.observed(err)
}

func (b *Broker) challenge(c Credentials) (Challenge, error) {
	switch {
	case c.Agent == "" || c.Timestamp == "" || c.Signature == "":
		return Challenge{}, unauthenticated(agentrelay.ReasonMissingHeaders,
			"sign the request: it needs the headers "+agentrelay.HeaderAgent+", "+agentrelay.HeaderTimestamp+" and "+agentrelay.HeaderSignature)
	case !agentrelay.ValidName(c.Agent):
		return Challenge{}, unauthenticated(agentrelay.ReasonBadAgentName,
			agentrelay.HeaderAgent+" must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	if err := b.lockout.check(suspect{c.Agent, c.Address}); err != nil {
		return Challenge{}, err
	}
	timestamp, err := agentrelay.ParseTimestamp(c.Timestamp)
	if err != nil {
		return Challenge{}, err
	}
	return Challenge{broker: b, given: c, timestamp: timestamp}, nil
}

// Verify checks the signature, then the clock. A bad signature counts toward
// the lock, a good one clears it. The agent then counts as seen.
func (c Challenge) Verify(method, target string, body []byte) error {
	return c.broker.observed(c.verify(method, target, body))
}

func (c Challenge) verify(method, target string, body []byte) error {
	b, who := c.broker, suspect{c.given.Agent, c.given.Address}
	if !agentrelay.Verify(b.options.Secret, method, target, c.given.Timestamp, body, c.given.Signature) {
		if b.lockout.fail(who) {
			b.log.Warn("agent locked", "agent", who.agent, "address", who.address, "duration", b.options.Lockout.Duration)
		}
		return unauthenticated(agentrelay.ReasonBadSignature,
			"the signature does not fit the request; check the secret, and that the bytes sent are the bytes signed")
	}
	b.lockout.succeed(who)
	if err := c.timestamp.CheckSkew(b.options.Clock.Now()); err != nil {
		return err
	}
	b.registry.see(who.agent)
	return nil
}

func unauthenticated(reason agentrelay.Reason, message string) error {
	return &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: reason, Message: message}
}
