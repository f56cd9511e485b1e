package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

var (
	// ErrUnreachable says that there was no answer: nobody listens, or the
	// connection broke. Whether the broker got the call is unknown.
	ErrUnreachable = errors.New("no broker answers")
	// ErrNotRelay says that what answered is no broker, or none of this
	// protocol, or does not know the secret. Whether a broker got the call is
	// unknown.
	ErrNotRelay = errors.New("something else answers there")
	// ErrTimeout says that the answer did not come within the time limit of
	// the call. Whether the broker got the call is unknown.
	ErrTimeout = errors.New("the broker does not answer in time")
)

// fault is an error with a text of its own that still is its kind and has its
// cause.
type fault struct {
	text        string
	kind, cause error
	// status and retryAfter are of an answer that is not of the protocol's
	// form, or whose code this client does not know.
	status     int
	retryAfter time.Duration
}

func (f *fault) Error() string {
	if f.cause == nil {
		return f.text
	}
	return f.text + ": " + f.cause.Error()
}

func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// transportError turns what net/http reports into what the caller can act on.
// outer is the caller's context, without the call's own time limit.
func (c *Client) transportError(outer context.Context, limit time.Duration, err error) error {
	if outer.Err() != nil {
		return outer.Err()
	}
	var broken *fault
	if errors.As(err, &broken) {
		err = broken.cause
	}
	// url.Error adds the URL, query and all, to what is said here already.
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	var op *net.OpError
	dialled := errors.As(err, &op) && op.Op == "dial"
	switch {
	case dialled && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES)):
		return &fault{text: fmt.Sprintf("this program may not connect to %s: a sandbox or a firewall forbids it, whether or not a broker runs there; allow it connections to that address", c.base), kind: ErrUnreachable, cause: err}
	case dialled:
		return &fault{text: fmt.Sprintf("no broker answers at %s; start it with `agent-relay setup start`, or correct the URL", c.base), kind: ErrUnreachable, cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &fault{text: fmt.Sprintf("the broker at %s did not answer within %v", c.base, limit), kind: ErrTimeout}
	case errors.Is(err, http.ErrSchemeMismatch), strings.Contains(err.Error(), "malformed HTTP"):
		return &fault{text: fmt.Sprintf("something else answers at %s; it does not speak HTTP as a broker does; correct the URL or the port", c.base), kind: ErrNotRelay, cause: err}
	}
	return &fault{text: fmt.Sprintf("the connection to the broker at %s failed", c.base), kind: ErrUnreachable, cause: err}
}

func (c *Client) notRelay(a answer) error {
	kind := a.header.Get("Content-Type")
	if kind == "" {
		kind = "no content type"
	}
	return &fault{
		text: fmt.Sprintf("something else answers at %s (HTTP %d, %.60s): this is no answer of a broker; correct the URL or the port", c.base, a.status, kind),
		kind: ErrNotRelay, status: a.status, retryAfter: retryAfter(a.header.Get("Retry-After")),
	}
}

// unsigned is an answer that nobody signed who knows the secret; text is what
// it says.
func (c *Client) unsigned(a answer, text string) error {
	how := "is not signed"
	if a.header.Get(agentrelay.HeaderSignature) != "" {
		how = "is not signed with this secret"
	}
	if text != "" {
		text = fmt.Sprintf(" (%q)", text)
	}
	return &fault{
		text: fmt.Sprintf("the answer of %s %s%s: something else answers on this port, or a broker that is too old; it counts as not received", c.base, how, text),
		kind: ErrNotRelay, status: a.status, retryAfter: retryAfter(a.header.Get("Retry-After")),
	}
}

// answeredToAll reports whether a broker gives this error without having
// verified the request, and so without signing it.
func answeredToAll(e *agentrelay.Error) bool {
	switch e.Code {
	case agentrelay.CodeUnauthenticated:
		return e.Reason != agentrelay.ReasonTimestampSkew && e.Reason != agentrelay.ReasonReplayed &&
			e.Reason != agentrelay.ReasonBeforeStart && e.Reason != agentrelay.ReasonSingleUseRequired
	case agentrelay.CodeUnknownAgent, agentrelay.CodeLocked, agentrelay.CodeOriginRefused, agentrelay.CodeMisdirected,
		agentrelay.CodeBodyTooLarge, agentrelay.CodeRateLimited, agentrelay.CodeBusy:
		return true
	}
	return false
}

// answerError reads an error answer. One that is not of the protocol's form is
// ErrNotRelay, and so is one that should be signed and is not: it settles
// nothing.
func (c *Client) answerError(a answer) error {
	var wire struct {
		Error struct {
			Code        string   `json:"code"`
			Message     string   `json:"message"`
			Reason      string   `json:"reason"`
			ServerTime  *float64 `json:"serverTime"`
			SkewSeconds *float64 `json:"skewSeconds"`
			Suggestions []string `json:"suggestions"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &wire) != nil || wire.Error.Code == "" || a.status < 400 {
		return c.notRelay(a)
	}
	e := &agentrelay.Error{
		Code:        agentrelay.Code(wire.Error.Code),
		Message:     wire.Error.Message,
		Reason:      agentrelay.Reason(wire.Error.Reason),
		RetryAfter:  retryAfter(a.header.Get("Retry-After")),
		Suggestions: wire.Error.Suggestions,
	}
	if wire.Error.ServerTime != nil {
		e.ServerTime = epochTime(*wire.Error.ServerTime)
	}
	if wire.Error.SkewSeconds != nil {
		e.Skew = duration(*wire.Error.SkewSeconds)
	}
	if !a.trusted && !answeredToAll(e) {
		return c.unsigned(a, e.Error())
	}
	if passingStatus(a.status) && !passingCode(e.Code) {
		// The code is newer than this client; the status tells enough.
		return &fault{text: e.Error(), kind: e, status: a.status, retryAfter: e.RetryAfter}
	}
	return e
}

// retryAfter reads the header's whole seconds; anything else is no advice.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// epochTime is the instant of Unix seconds with a fraction; zero for 0 and for
// what no clock shows.
func epochTime(seconds float64) time.Time {
	if seconds <= 0 || seconds > 1e12 {
		return time.Time{}
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9))
}

// duration is that many seconds, held within what a Duration can hold.
func duration(seconds float64) time.Duration {
	const limit = float64(math.MaxInt64 / int64(time.Second))
	return time.Duration(max(-limit, min(limit, seconds)) * float64(time.Second))
}
