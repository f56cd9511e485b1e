package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

const pullTarget = "/v1/pull"

// PullOptions say what to take for work.
type PullOptions struct {
	// Limit and MaxBytes bound the answer as in PollOptions.
	Limit    int
	MaxBytes int
	// Lease is how long the messages are this agent's alone. Parts of a second
	// count as one; a day is the most. Default: the broker's.
	Lease time.Duration
	// Wait is how long the broker holds the answer while there is no message.
	// Parts of a second count as one; a minute is the most.
	Wait time.Duration
}

// Pull takes the oldest queued messages for work. Each carries a lease id, to
// be settled before LeaseUntil. A message whose lease ran out is delivered
// again.
func (c *Client) Pull(ctx context.Context, o PullOptions) ([]agentrelay.Message, error) {
	wait := waitFor(o.Wait)
	b := appendNumber(nil, "limit", int64(o.Limit))
	b = appendNumber(b, "max_bytes", int64(o.MaxBytes))
	b = appendNumber(b, "leaseSeconds", wholeSeconds(o.Lease))
	b = appendNumber(b, "waitSeconds", wholeSeconds(wait))
	var result struct {
		Messages *[]agentrelay.Message `json:"messages"`
	}
	err := c.do(ctx, call{method: http.MethodPost, target: pullTarget, body: object(b), wait: wait}, &result,
		func() bool { return result.Messages != nil })
	if err != nil {
		return nil, err
	}
	return *result.Messages, nil
}

// Settlement ends a lease.
type Settlement struct {
	ID, LeaseID string
	Outcome     agentrelay.Outcome
	// Error says why the work is to be tried again. It is kept with the
	// message.
	Error string
}

// Settled is where a settlement left the message.
type Settled struct {
	Status   agentrelay.Status
	Attempts int
}

// Settle ends a lease: completed, and the message is done; retry, and it is
// delivered again, unless its attempts are spent. The settlement that ended a
// lease, repeated, returns the same. A lease that is over is ErrNotLeased or
// ErrLeaseMismatch.
func (c *Client) Settle(ctx context.Context, s Settlement) (Settled, error) {
	if s.ID == "" {
		return Settled{}, errNoID
	}
	b := appendText(nil, "messageId", s.ID)
	b = appendText(b, "leaseId", s.LeaseID)
	b = appendText(b, "outcome", string(s.Outcome))
	if s.Error != "" {
		b = appendText(b, "error", s.Error)
	}
	var result struct {
		OK       bool              `json:"ok"`
		Status   agentrelay.Status `json:"status"`
		Attempts int               `json:"attempts"`
	}
	err := c.do(ctx, call{method: http.MethodPost, target: "/v1/ack", body: object(b)}, &result,
		func() bool { return result.OK && result.Status != "" })
	if err != nil {
		return Settled{}, err
	}
	return Settled{Status: result.Status, Attempts: result.Attempts}, nil
}

// Renewal prolongs a lease.
type Renewal struct {
	ID, LeaseID string
	// For is how long the lease lasts from now. Parts of a second count as
	// one; a day is the most. Default: the broker's.
	For time.Duration
}

// Renew makes a lease last longer and returns when it is over, by the broker's
// clock. Errors are those of Settle.
func (c *Client) Renew(ctx context.Context, r Renewal) (until time.Time, err error) {
	if r.ID == "" {
		return time.Time{}, errNoID
	}
	b := appendText(nil, "messageId", r.ID)
	b = appendText(b, "leaseId", r.LeaseID)
	b = appendNumber(b, "leaseSeconds", wholeSeconds(r.For))
	var result struct {
		OK         bool    `json:"ok"`
		LeaseUntil float64 `json:"leaseUntil"`
	}
	err = c.do(ctx, call{method: http.MethodPost, target: "/v1/lease/renew", body: object(b)}, &result,
		func() bool { return result.OK && 0 < result.LeaseUntil && result.LeaseUntil < 1e15 })
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(int64(result.LeaseUntil)), nil
}

// appendNumber appends a member of a JSON object, led by a comma, unless it is
// zero or less.
func appendNumber(b []byte, name string, value int64) []byte {
	if value <= 0 {
		return b
	}
	return strconv.AppendInt(append(b, `,"`+name+`":`...), value, 10)
}

// appendText appends a member of a JSON object, led by a comma.
func appendText(b []byte, name, value string) []byte {
	return agentrelay.AppendString(append(b, `,"`+name+`":`...), value)
}

// object makes an object of members that are each led by a comma.
func object(members []byte) []byte {
	if len(members) == 0 {
		return []byte(`{}`)
	}
	members[0] = '{'
	return append(members, '}')
}
