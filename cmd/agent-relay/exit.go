package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// Exit statuses: those of sysexits.h that scripts can act on, and 1 for the
// rest.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 64
	exitBadData     = 65
	exitUnreachable = 69
	exitTryAgain    = 75
	exitRefused     = 77
)

// exitError ends the program with a status of its own. Without err nothing
// more is printed: the command has said what there is to say.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is an error in how the program was called; its text says what to do
// instead.
func usagef(format string, args ...any) error {
	return &exitError{status: exitUsage, err: fmt.Errorf(format, args...)}
}

// report prints err as one line for a person and returns the exit status.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	var own *exitError
	if !errors.As(err, &own) || own.err != nil {
		a.note("agent-relay: %s", printable(explain(err)))
	}
	return exitStatus(err)
}

// explain is the error's text and, where that lacks it, what to do.
func explain(err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var answer *agentrelay.Error
	if !errors.As(err, &answer) {
		return text
	}
	var missing []string
	for _, name := range answer.Suggestions {
		if !strings.Contains(text, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		text += "; did you mean " + strings.Join(missing, " or ") + "?"
	}
	if answer.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %v)", answer.RetryAfter)
	}
	return text
}

// printable takes out what could drive a terminal: parts of the text may come
// from whoever answers at the broker's address. Lines that end as on Windows
// end like others.
func printable(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r != '\n' && drives(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

// drives reports whether a character does something to a terminal instead of
// being shown: controls, and what changes the direction of writing (Unicode
// Standard Annex 9).
func drives(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// exitStatus is the one place that knows which failure ends in which status.
func exitStatus(err error) int {
	var own *exitError
	if errors.As(err, &own) {
		return own.status
	}
	var answer *agentrelay.Error
	switch {
	case errors.As(err, &answer):
		if client.Passing(err) {
			return exitTryAgain
		}
		return codeStatus(answer.Code)
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrNotRelay):
		return exitUnreachable
	case errors.Is(err, client.ErrTimeout):
		return exitTryAgain
	}
	return exitFailure
}

func codeStatus(code agentrelay.Code) int {
	switch code {
	case agentrelay.CodeBadRequest, agentrelay.CodeBodyTooLarge,
		agentrelay.CodeNotFound, agentrelay.CodeNoSuchAgent, agentrelay.CodeNoSuchMessage,
		agentrelay.CodeIDConflict, agentrelay.CodeHookRejected:
		return exitBadData
	case agentrelay.CodeUnauthenticated, agentrelay.CodeUnknownAgent, agentrelay.CodeForbidden, agentrelay.CodeLocked,
		agentrelay.CodeOriginRefused:
		return exitRefused
	}
	return exitFailure
}
