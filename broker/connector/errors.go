package connector

import "errors"

// Why an action was not sent. Such an action may be given to Send again.
var (
	// ErrOffline: there is no connection whose handshake was good, or it is
	// about to be closed.
	ErrOffline = errors.New("the connector is not connected")
	// ErrUnknownIdentity: the relay has no such identity with the connector.
	ErrUnknownIdentity = errors.New("the connector has no such identity")
	// ErrFrameTooLarge: the action does not fit into a frame, and never will.
	ErrFrameTooLarge = errors.New("the frame would be larger than 1 MiB")
)

// Why a connection or a transport ended.
var (
	// ErrNoDescriptor: the connector sent no descriptor within the time.
	ErrNoDescriptor = errors.New("the connector sent no descriptor in time")
	// ErrRefused: the connector refused a fresh token right after it had taken
	// back its welcome. Dialling again would not help.
	ErrRefused = errors.New("the connector refuses this relay; check the gateway id and the secret")
)

// permanentError marks an error that depends on the frame.
type permanentError struct{ err error }

func (e permanentError) Error() string { return e.err.Error() }
func (e permanentError) Unwrap() error { return e.err }

// Permanent marks an error of a handler that the same frame would meet again:
// the frame is set aside, and acknowledged so that it does not block the rest.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent reports whether Permanent marked the error.
func IsPermanent(err error) bool {
	var permanent permanentError
	return errors.As(err, &permanent)
}
