package broker

import (
	"fmt"
	"slices"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Credentials are what a request says of its sender, before its body is read.
type Credentials struct {
	Agent, Timestamp, Signature string
	// Address is the client's network address, without port.
	Address string
	// Prefix is a path that a proxy may have cut off the request target.
	Prefix string
}

// Challenge is a request whose credentials may be verified.
type Challenge struct {
	broker    *Broker
	given     Credentials
	timestamp agentrelay.Timestamp
}

// Challenge checks all of a request's credentials that needs no body: that
// they are there, the agent's name, that a key is good for it, its lock and the
// form of the timestamp (PROTOCOL.md, "Order of checks").
func (b *Broker) Challenge(c Credentials) (Challenge, error) {
	challenge, err := b.challenge(c)
	return challenge, b.observed(c.Agent, err)
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
	if _, err := b.keysFor(c.Agent, b.options.Clock.Now()); err != nil {
		return Challenge{}, err
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

// Caller is who signed a request, and how.
type Caller struct {
	Agent             string
	secret, signature string
}

// Sign signs an answer for the caller; it is empty for one that was not
// verified.
func (c Caller) Sign(status int, body []byte) string {
	if c.secret == "" {
		return ""
	}
	return agentrelay.SignAnswer(c.secret, c.signature, status, body)
}

// Verify checks the signature, then the clock, then that the signature was not
// used before. A bad signature counts toward the lock, a good one clears it. The
// agent then counts as seen. The caller is known as soon as the signature is
// good, also with an error.
func (c Challenge) Verify(method, target string, body []byte) (Caller, error) {
	caller, err := c.verify(method, target, body)
	return caller, c.broker.observed(c.given.Agent, err)
}

func (c Challenge) verify(method, target string, body []byte) (Caller, error) {
	b, who := c.broker, suspect{c.given.Agent, c.given.Address}
	now := b.options.Clock.Now()
	// Keys may have ended while the body came.
	keys, err := b.keysFor(who.agent, now)
	if err != nil {
		return Caller{}, err
	}
	secret, key, ok := b.signer(keys, now, func(secret string) bool {
		return c.signed(secret, method, target, body)
	})
	if !ok {
		b.suspect(who, now)
		return Caller{}, unauthenticated(agentrelay.ReasonBadSignature,
			"the signature does not fit the request; check the secret, and that the bytes sent are the bytes signed")
	}
	b.lockout.succeed(who)
	caller := Caller{who.agent, secret, c.given.Signature}
	if err := c.timestamp.CheckSkew(now); err != nil {
		return caller, err
	}
	if err := b.useOnce(caller, c.timestamp, now); err != nil {
		return caller, err
	}
	b.registry.see(who.agent, key)
	return caller, nil
}

// suspect counts a bad signature.
func (b *Broker) suspect(who suspect, now time.Time) {
	if b.lockout.fail(who) {
		b.audit.Warn("agent locked", "agent", who.agent, "address", who.address, "duration", b.rules.Load().Lockout.Duration)
		b.hub.tell(Event{Kind: AgentLocked, Agent: who.agent, At: now})
	}
}

// keysFor returns an agent's own keys, some of which are good, or none if the
// shared secret is good for it. If nothing is, it is CodeUnknownAgent.
func (b *Broker) keysFor(agent string, now time.Time) ([]*ownKey, error) {
	keys, keyed := b.registry.keys(agent)
	switch {
	case b.options.Reserved[agent]:
		return nil, unknownAgent(agent, "is the broker's own; nobody can sign for it")
	case keyed && !slices.ContainsFunc(keys, func(k *ownKey) bool { return k.Good(now) }):
		return nil, unknownAgent(agent, "has no key any more that is good; ask the broker's operator for a new one")
	case !keyed && b.rules.Load().RequireAgentKeys:
		return nil, unknownAgent(agent, "has no key of its own, and this broker takes no other; ask its operator for one")
	}
	return keys, nil
}

// signer finds the secret that fits: of all good ones of keys, or else the
// shared one. All are tried, so that the time does not tell which it was.
func (b *Broker) signer(keys []*ownKey, now time.Time, fits func(secret string) bool) (secret string, key *ownKey, ok bool) {
	if len(keys) == 0 {
		return b.options.Secret, nil, fits(b.options.Secret)
	}
	for _, k := range keys {
		if k.Good(now) && fits(string(k.Secret)) {
			key, ok = k, true
		}
	}
	if !ok {
		return "", nil, false
	}
	return string(key.Secret), key, true
}

func unknownAgent(agent, why string) error {
	return &agentrelay.Error{Code: agentrelay.CodeUnknownAgent, Message: fmt.Sprintf("%q %s", agent, why)}
}

// signed reports whether the signature is that of the request, or of what the
// request was before a proxy cut its prefix off.
func (c Challenge) signed(secret, method, target string, body []byte) bool {
	signed := agentrelay.Verify(secret, method, target, c.given.Timestamp, body, c.given.Signature)
	if !signed && c.given.Prefix != "" {
		signed = agentrelay.Verify(secret, method, c.given.Prefix+target, c.given.Timestamp, body, c.given.Signature)
	}
	return signed
}

// useOnce refuses signatures that were used before. Whole seconds cannot tell
// two requests apart, and pass unless RequireSingleUse says otherwise.
func (b *Broker) useOnce(c Caller, t agentrelay.Timestamp, now time.Time) error {
	switch {
	case t.Fractional():
		return b.singleUse.take(c.secret, t, c.signature, now)
	case b.rules.Load().RequireSingleUse:
		return clockRefusal(agentrelay.ReasonSingleUseRequired, t, now,
			"this broker takes only timestamps with a fraction of a second, of which each is good once")
	}
	return nil
}

func unauthenticated(reason agentrelay.Reason, message string) error {
	return &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: reason, Message: message}
}
