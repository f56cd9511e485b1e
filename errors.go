package agentrelay

import (
	"errors"
	"time"
)

// Code names a kind of failure. Codes are part of the protocol: they travel in
// the "code" member of an error answer and mean the same on both sides.
type Code string

// The codes of protocol 1.0 that this version answers (PROTOCOL.md, "Errors").
const (
	CodeBadRequest       Code = "bad_request"
	CodeUnauthenticated  Code = "unauthenticated"
	CodeUnknownAgent     Code = "unknown_agent"
	CodeLocked           Code = "locked"
	CodeForbidden        Code = "forbidden"
	CodeOriginRefused    Code = "origin_refused"
	CodeNoSuchAgent      Code = "no_such_agent"
	CodeNoSuchMessage    Code = "no_such_message"
	CodeNotFound         Code = "not_found"
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeNotLeased        Code = "not_leased"
	CodeLeaseMismatch    Code = "lease_mismatch"
	CodeBodyTooLarge     Code = "body_too_large"
	CodeMisdirected      Code = "misdirected"
	CodeIDConflict       Code = "id_conflict"
	CodeHookRejected     Code = "hook_rejected"
	CodeRateLimited      Code = "rate_limited"
	CodeQueueFull        Code = "queue_full"
	CodeBusy             Code = "busy"
	CodeStorageFull      Code = "storage_full"
)

// Codes lists every code, in the order of PROTOCOL.md's table.
func Codes() []Code {
	return []Code{
		CodeBadRequest, CodeUnauthenticated, CodeUnknownAgent, CodeLocked, CodeForbidden, CodeOriginRefused,
		CodeNoSuchAgent, CodeNoSuchMessage, CodeNotFound, CodeMethodNotAllowed,
		CodeNotLeased, CodeLeaseMismatch, CodeBodyTooLarge, CodeMisdirected,
		CodeIDConflict, CodeHookRejected, CodeRateLimited, CodeQueueFull, CodeBusy, CodeStorageFull,
	}
}

// Reason says why a request was not authenticated.
type Reason string

// The reasons of an unauthenticated answer (PROTOCOL.md, "Errors").
const (
	ReasonMissingHeaders Reason = "missing_headers"
	ReasonBadAgentName   Reason = "bad_agent_name"
	ReasonBadTimestamp   Reason = "bad_timestamp"
	ReasonBadSignature   Reason = "bad_signature"
	ReasonTimestampSkew  Reason = "timestamp_skew"
	// The request's signature was used before.
	ReasonReplayed Reason = "replayed"
	// The request was signed before the broker started, which does not know
	// what was used then.
	ReasonBeforeStart Reason = "before_start"
	// The broker takes only timestamps with a fraction.
	ReasonSingleUseRequired Reason = "single_use_required"
)

// Reasons lists every reason, in the order of PROTOCOL.md's table.
func Reasons() []Reason {
	return []Reason{
		ReasonMissingHeaders, ReasonBadAgentName, ReasonBadTimestamp, ReasonBadSignature,
		ReasonTimestampSkew, ReasonReplayed, ReasonBeforeStart, ReasonSingleUseRequired,
	}
}

// Error is a failure that may cross the wire. Message is public and says what
// to do; Err is the private cause and goes to the log only.
type Error struct {
	Code    Code
	Message string
	Err     error

	// Reason refines CodeUnauthenticated.
	Reason Reason
	// RetryAfter says when another try makes sense: CodeLocked,
	// CodeRateLimited, CodeQueueFull, CodeBusy. Whole seconds travel.
	RetryAfter time.Duration
	// ServerTime is the broker's clock, and Skew the request's timestamp
	// minus that clock. Both are set with ReasonTimestampSkew and the reasons
	// after it.
	ServerTime time.Time
	Skew       time.Duration
	// Suggestions are registered names near one that is not: CodeNoSuchAgent.
	Suggestions []string
}

// Errors to compare with errors.Is, which compares codes.
var (
	ErrBadRequest      = &Error{Code: CodeBadRequest}
	ErrUnauthenticated = &Error{Code: CodeUnauthenticated}
	ErrUnknownAgent    = &Error{Code: CodeUnknownAgent}
	ErrLocked          = &Error{Code: CodeLocked}
	ErrForbidden       = &Error{Code: CodeForbidden}
	ErrNoSuchAgent     = &Error{Code: CodeNoSuchAgent}
	ErrNoSuchMessage   = &Error{Code: CodeNoSuchMessage}
	ErrNotLeased       = &Error{Code: CodeNotLeased}
	ErrLeaseMismatch   = &Error{Code: CodeLeaseMismatch}
	ErrBodyTooLarge    = &Error{Code: CodeBodyTooLarge}
	ErrIDConflict      = &Error{Code: CodeIDConflict}
	ErrHookRejected    = &Error{Code: CodeHookRejected}
	ErrRateLimited     = &Error{Code: CodeRateLimited}
	ErrQueueFull       = &Error{Code: CodeQueueFull}
	ErrBusy            = &Error{Code: CodeBusy}
	ErrStorageFull     = &Error{Code: CodeStorageFull}
)

// Error is the public text, followed by the cause if there is one.
func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = string(e.Code)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an Error of the same code and, if target names
// a reason, of the same reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (t.Reason == "" || t.Reason == e.Reason)
}

// Wrap makes err fit to be answered: an Error stays what it is, anything else
// becomes CodeBusy, a passing internal fault whose cause is for the log.
func Wrap(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{
		Code:       CodeBusy,
		Message:    "the broker could not do this just now; try again",
		RetryAfter: time.Second,
		Err:        err,
	}
}

func badRequest(message string) *Error {
	return &Error{Code: CodeBadRequest, Message: message}
}
