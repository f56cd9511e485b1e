package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// Hooks fires events. It checks their kind and payload.
type Hooks interface {
	Fire(ctx context.Context, kind hook.Kind, payload json.RawMessage) hook.Result
}

const (
	// lineTimeout is how long a client of the hook socket may take to send
	// its line.
	lineTimeout = 5 * time.Second
	// maxAnswer keeps an answer, with its newline, within what clients read
	// at once.
	maxAnswer = 64<<10 - 2
)

// HookHandler serves the hook socket: Serve of Options.
//
// A connection has one request, a line {"kind":KIND,"payload":{…}}, which must
// have come after 5 s, and is answered by one line {"ok":…,"errors":[…]} of
// less than 64 KiB, in one write. Then it is closed. Members of other names
// are ignored; of several with one name the last counts. A connection on which
// nothing is sent is closed without an answer.
//
// A connection is idle until its line is there. Hooks must keep those that
// wait for scripts well under Options.MaxConns, so that others find room.
func HookHandler(hooks Hooks) func(context.Context, *Conn) {
	return hookHandler{hooks, lineTimeout}.serve
}

type hookHandler struct {
	hooks   Hooks
	timeout time.Duration
}

func (h hookHandler) serve(ctx context.Context, c *Conn) {
	if err := c.SetReadDeadline(time.Now().Add(h.timeout)); err != nil {
		return // it was closed
	}
	line, err := c.ReadLine()
	if !c.SetIdle(false) {
		return
	}
	switch {
	case err == nil:
		answer(c, h.handle(ctx, line))
	case errors.Is(err, ErrLineTooLong):
		answer(c, hook.Failed(hook.BadRequest(err.Error())))
		// Were it closed with the rest unread, a client that writes first and
		// then reads would fail before it sees the answer.
		if c.SetIdle(true) {
			c.SkipLine()
		}
	case errors.Is(err, os.ErrDeadlineExceeded) && len(line) > 0:
		answer(c, hook.Failed(hook.BadRequest(fmt.Sprintf("the line did not end within %s", h.timeout))))
	}
}

func answer(c *Conn, r hook.Result) {
	_, _ = c.Write(append(r.AppendJSON(nil, maxAnswer), '\n')) // the client may have gone
}

// handle fires what a line asks for.
func (h hookHandler) handle(ctx context.Context, line []byte) hook.Result {
	kind, payload, problem := parseRequest(line)
	if problem != "" {
		return hook.Failed(hook.BadRequest(problem))
	}
	return h.hooks.Fire(ctx, kind, payload)
}

// parseRequest reads a request. The payload is some JSON value, byte for byte,
// or nothing. Names match exactly, in case too.
func parseRequest(line []byte) (kind hook.Kind, payload json.RawMessage, problem string) {
	if !utf8.Valid(line) {
		return "", nil, "it is not valid UTF-8"
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(line, &members)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong), err == nil && members == nil:
		return "", nil, `it must be an object, {"kind":…,"payload":{…}}`
	case err != nil:
		return "", nil, err.Error()
	}
	var text *string
	if err := json.Unmarshal(orNull(members["kind"]), &text); err != nil {
		return "", nil, `"kind" must be a string`
	}
	if text == nil {
		return "", nil, `"kind" is missing`
	}
	if kind = hook.Kind(*text); kind.Err() != nil {
		return "", nil, kind.Err().Error()
	}
	if payload = members["payload"]; bytes.Equal(payload, []byte("null")) {
		payload = nil
	}
	return kind, payload, ""
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}
