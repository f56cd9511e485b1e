package broker

import (
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// AgentInfo is all that an operator may know of an agent. There are no secrets
// in it.
type AgentInfo struct {
	Agent, Description string
	// AllowedTargets are the only agents to which it may send; nil are all.
	AllowedTargets []string
	// MaxQueued bounds its inbox; 0 leaves that to the broker.
	MaxQueued          int64
	Registered, Online bool
	LastSeen           time.Time
	Queued, Leased     int
	// Keys are those that are good, and those that ended not long ago.
	Keys []KeyInfo
	// LockedUntil is when the last lock of this agent ends; zero if it is not
	// locked.
	LockedUntil time.Time
}

// KeyInfo is what an operator may know of a key that is there.
type KeyInfo struct {
	ID      string
	Created time.Time
	// NotAfter is when the key ends; zero: never.
	NotAfter time.Time
	// LastUsed is when it last signed; zero: never.
	LastUsed time.Time
}

// Key is a key that was just made. It is the only place where its secret is
// shown, and does not print it.
type Key struct {
	Agent, ID, Secret string
	// NotAfter is when the key ends; zero: never.
	NotAfter time.Time
}

// String names the key without its secret.
func (k Key) String() string { return k.Agent + "/" + k.ID }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// MarshalText is String: a key is answered member by member, never by accident.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Patch changes one value: not Set leaves it, a nil Value removes it.
type Patch[T any] = store.Patch[T]

// AgentPatch changes what an operator has set for an agent.
type AgentPatch = store.AgentPatch
