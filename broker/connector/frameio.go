package connector

import (
	"context"
	"errors"
	"fmt"
)

// FrameIO carries frames over one connection, from either end. Its methods may
// be called at once from several goroutines, but Receive from one only.
type FrameIO interface {
	// Send writes a frame, given as one line without its newline. ctx bounds
	// the writing; when it ends in the middle, so does the connection. An
	// error that does not wrap ErrNotSent ends the connection, and the frame
	// may have arrived.
	Send(ctx context.Context, frame []byte) error
	// Receive returns the next frame, which then belongs to the caller. An
	// error that wraps ErrBadFrame tells of a frame that was skipped, and
	// Receive may be called again. Any other is the end; it is a *CloseError
	// when the peer closed the connection with a code.
	Receive(ctx context.Context) ([]byte, error)
	// Done is closed when the connection is over. What arrived before is still
	// returned by Receive.
	Done() <-chan struct{}
	// Close closes the connection with a code and a reason, and waits for the
	// peer to agree until ctx ends. When it returns, no goroutine of the
	// connection is left. It may be called again.
	Close(ctx context.Context, code int, reason string)
}

// Dialer opens connections.
type Dialer interface {
	// Dial opens one. authenticated is whether it proved to the connector who
	// is calling.
	Dial(ctx context.Context) (conn FrameIO, authenticated bool, err error)
}

// ErrNotSent is wrapped by errors after which not a byte of a frame was
// written.
var ErrNotSent = errors.New("the frame was not sent")

// Codes with which a connection is closed (RFC 6455 section 7.4.1).
const (
	CloseNormal    = 1000
	CloseGoingAway = 1001
)

// CloseError says that the peer closed the connection.
type CloseError struct {
	Code   int
	Reason string
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("the connection was closed with code %d, reason %q", e.Code, e.Reason)
}
