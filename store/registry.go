package store

import (
	"context"
	"time"
)

// Registry is the agents: who may get messages, what an operator has set for
// each, and the keys that are its own.
//
// A method that changes an agent returns it as it then is. CodeNoSuchAgent if
// it is not registered.
type Registry interface {
	// Register makes agent known, so that messages may be sent to it, and
	// records that it was seen. Repeating it is harmless.
	Register(ctx context.Context, agent string) error
	// Touch records when registered agents were last seen. Names that are not
	// registered are ignored, and no time moves back.
	Touch(ctx context.Context, seen map[string]time.Time) error
	// Agents returns the registered agents, sorted by name.
	Agents(ctx context.Context) ([]Agent, error)
	// Backlog counts what waits in an inbox, or, if agent is empty, in each
	// that has something. What it costs grows with what it counts.
	Backlog(ctx context.Context, agent string) (map[string]Backlog, error)

	// AddAgent registers an agent, sets what p says and gives it its first key.
	// It was not seen by that.
	// CodeBadRequest if it was given keys before.
	AddAgent(ctx context.Context, agent string, p AgentPatch, k Key) (Agent, error)
	// UpdateAgent sets what p says.
	UpdateAgent(ctx context.Context, agent string, p AgentPatch) (Agent, error)
	// RemoveAgent forgets an agent, what was set for it and its keys. Its
	// messages stay for their time, and the positions of its inbox go on.
	RemoveAgent(ctx context.Context, agent string) error

	// AddKey gives an agent one more key. CodeBadRequest if it has MaxKeys that
	// have not ended.
	AddKey(ctx context.Context, agent string, k Key) (Agent, error)
	// RotateKey is AddKey, and ends the agent's other keys at the given time,
	// unless they end sooner. Keys that have ended then do not count.
	RotateKey(ctx context.Context, agent string, k Key, end time.Time) (Agent, error)
	// RevokeKey forgets a key. CodeBadRequest if the agent does not have it.
	RevokeKey(ctx context.Context, agent, keyID string) (Agent, error)
	// Used records when keys last signed. Those that are not there are ignored,
	// and no time moves back.
	Used(ctx context.Context, used map[KeyName]time.Time) error
}

const (
	// MaxKeys is how many keys of an agent may be good at one time.
	MaxKeys = 5
	// EndedKeyTTL is how long at least a key that ended is still shown. It is
	// forgotten with the next key that its agent gets.
	EndedKeyTTL = 24 * time.Hour
)

// Agent is a registered agent.
type Agent struct {
	Name     string
	LastSeen time.Time
	// Description is for people.
	Description string
	// AllowedTargets are the only agents to which it may send; nil are all.
	AllowedTargets []string
	// MaxQueued bounds its inbox; 0 leaves that to the broker.
	MaxQueued int64
	// Waiting is how many messages of its inbox count toward that: those that
	// are queued and were never handed over, but for receipts; WaitingBytes is
	// the size of their bodies. One whose time is over counts until that is
	// recorded.
	Waiting      int
	WaitingBytes int64
	// Keyed says that it was given keys, if only some that are gone: no other
	// secret is good for it.
	Keyed bool
	// Keys are sorted by when they were made.
	Keys []Key
}

// Key is a secret of one agent.
type Key struct {
	// ID tells the agent's keys apart.
	ID     string
	Secret Secret
	// Created is set by the store.
	Created time.Time
	// NotAfter is when the key ends; zero: never.
	NotAfter time.Time
	// LastUsed may be a minute old; zero: never.
	LastUsed time.Time
}

// Good reports whether the key has not ended.
func (k *Key) Good(now time.Time) bool { return k.NotAfter.IsZero() || now.Before(k.NotAfter) }

// KeyName names a key among all.
type KeyName struct{ Agent, ID string }

// Secret is a secret that does not print; convert it to a string where it is
// needed.
type Secret string

const hiddenSecret = "(secret)"

func (Secret) String() string               { return hiddenSecret }
func (Secret) GoString() string             { return hiddenSecret }
func (Secret) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// AgentPatch changes what an operator has set for an agent.
type AgentPatch struct {
	Description    Patch[string]
	AllowedTargets Patch[[]string]
	MaxQueued      Patch[int64]
}

// Patch changes one value: not Set leaves it, a nil Value removes it.
type Patch[T any] struct {
	Set   bool
	Value *T
}

// Over is what the patch makes of a value.
func (p Patch[T]) Over(old T) T {
	switch {
	case !p.Set:
		return old
	case p.Value == nil:
		var none T
		return none
	}
	return *p.Value
}

// Over is the agent with what the patch changes.
func (p AgentPatch) Over(a Agent) Agent {
	a.Description = p.Description.Over(a.Description)
	a.AllowedTargets = p.AllowedTargets.Over(a.AllowedTargets)
	if p.AllowedTargets.Set && p.AllowedTargets.Value != nil && a.AllowedTargets == nil {
		a.AllowedTargets = []string{} // nobody, not anyone
	}
	a.MaxQueued = p.MaxQueued.Over(a.MaxQueued)
	return a
}

// Backlog is what waits in an inbox. A message whose time or lease is over
// counts until that is recorded.
type Backlog struct{ Queued, Leased int }
