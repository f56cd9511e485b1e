package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// HookKind names a kind of event that hooks run for.
type HookKind = hook.Kind

// HookResult is what came of an event, and HookFailure why a script of it
// failed or was not run.
type (
	HookResult  = hook.Result
	HookFailure = hook.Failure
)

// FireHook has the scripts that are installed for a kind of event run, through
// the hook socket at path, and waits until they have ended, or ctx. The payload
// is a JSON object; nil is {}. Nobody listening is ErrUnreachable.
func FireHook(ctx context.Context, path string, kind HookKind, payload json.RawMessage) (HookResult, error) {
	if payload == nil {
		payload = json.RawMessage(`{}`)
	}
	line, err := json.Marshal(struct {
		Kind    HookKind        `json:"kind"`
		Payload json.RawMessage `json:"payload"`
	}{kind, payload})
	if err != nil {
		return HookResult{}, fmt.Errorf("the payload: %w", err)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		if ctx.Err() != nil {
			return HookResult{}, ctx.Err()
		}
		return HookResult{}, &fault{
			text: fmt.Sprintf("nobody answers at the hook socket %s; start the broker, or `agent-relay hooks serve`", path),
			kind: ErrUnreachable, cause: err,
		}
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// A line that is too long is answered before it was read to its end.
	_, writing := conn.Write(append(line, '\n'))
	answer, err := bufio.NewReader(conn).ReadBytes('\n')
	var r HookResult
	switch {
	case ctx.Err() != nil:
		return HookResult{}, ctx.Err()
	case err != nil && len(answer) == 0:
		return HookResult{}, &fault{
			text: fmt.Sprintf("the connection to the hook socket %s broke", path), kind: ErrUnreachable, cause: errors.Join(writing, err),
		}
	case json.Unmarshal(answer, &r) != nil:
		return HookResult{}, &fault{text: fmt.Sprintf("something else answers at %s; it is no hook socket", path), kind: ErrNotRelay}
	}
	return r, nil
}
