// Package agentrelay is the vocabulary of the relay: messages, cursors,
// errors and the request signature, as PROTOCOL.md defines them.
//
// Broker, store and client all build on it. It does no I/O, reads no clock
// and makes no randomness, and it imports the standard library only.
package agentrelay

// ProtocolVersion is the version that GET / announces. Clients refuse to run
// against any other.
const ProtocolVersion = "1.0"

// Limits of the protocol that every part of the relay shares.
const (
	// DefaultLimit is how many messages a listing returns when the caller
	// names no readable limit.
	DefaultLimit = 50
	// MaxLimit is the most messages one listing returns.
	MaxLimit = 200
	// MaxPageBytes is the most bytes of message bodies one listing returns;
	// a page holds at least one message, however large.
	MaxPageBytes = 4 << 20
	// MaxStatusIDs is the most ids one status call may name.
	MaxStatusIDs = 200
	// MinLeaseSeconds and MaxLeaseSeconds bound a lease.
	MinLeaseSeconds = 1
	MaxLeaseSeconds = 86400
	// MaxWaitSeconds is the longest a long poll is held.
	MaxWaitSeconds = 60
)
