package agentrelay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"time"
)

// Type tells messages from receipts.
type Type string

// The types of a message.
const (
	TypeMessage Type = "message"
	TypeAck     Type = "ack"
)

// Kind is what a message is for, as its sender sees it.
type Kind string

// The kinds of a message.
const (
	KindMessage Kind = "message"
	KindRequest Kind = "request"
	KindReply   Kind = "reply"
)

// Status is where a message stands in its life (PROTOCOL.md, "Delivery").
type Status string

// The states of a message.
const (
	StatusQueued  Status = "queued"
	StatusLeased  Status = "leased"
	StatusDone    Status = "done"
	StatusFailed  Status = "failed"
	StatusExpired Status = "expired"
)

// Outcome is how a lease is settled.
type Outcome string

// The outcomes of a lease.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeRetry     Outcome = "retry"
)

// Message is one envelope. Strings that the protocol shows as null are empty
// here, times that it shows as null are zero.
type Message struct {
	ID       string
	From, To string
	// TS is when the broker accepted the message, to the millisecond.
	TS   time.Time
	Type Type
	// Body is the JSON value as the sender wrote it, byte for byte.
	Body             json.RawMessage
	ReplyTo          string
	Ack              bool
	Kind             Kind
	RootID, ParentID string
	Status           Status
	Attempts         int
	LeaseUntil       time.Time
	LeaseID          string
	Error            string
	DeliveredAt      time.Time
}

// Fingerprint is SHA-256 over the members that never change. It decides
// whether a known id is a duplicate or a conflict, and shows damage when a
// stored message is read.
func (m *Message) Fingerprint() [sha256.Size]byte {
	h := sha256.New()
	var b []byte
	for _, s := range []string{m.From, m.To, m.ID, string(m.Type), string(m.Kind), m.ReplyTo, m.RootID, m.ParentID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if m.Ack {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	h.Write(b)
	h.Write(m.Body)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// Peer is an agent as others see it.
type Peer struct {
	Agent  string
	Online bool
	// LastSeen is the agent's last authenticated request; zero if it was
	// never seen.
	LastSeen time.Time
}
