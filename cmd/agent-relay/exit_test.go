package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{io.EOF, 1},
		{context.Canceled, 1},
		{usagef("x"), 64},
		{&exitError{status: 1}, 1},
		{&exitError{exitBadData, io.EOF}, 65},
		{fmt.Errorf("later: %w", usagef("x")), 64},
		{client.ErrUnreachable, 69},
		{client.ErrNotRelay, 69},
		{client.ErrTimeout, 75},
		{agentrelay.ErrBadRequest, 65},
		{fmt.Errorf("send: %w", agentrelay.ErrBusy), 75},
	} {
		if got := exitStatus(c.err); got != c.want {
			t.Errorf("%v ends with %d, want %d", c.err, got, c.want)
		}
	}
}

func TestExitStatusOfEveryCode(t *testing.T) {
	want := map[agentrelay.Code]int{
		"bad_request": 65, "unauthenticated": 77, "unknown_agent": 77, "locked": 77, "forbidden": 77, "origin_refused": 77, "no_such_agent": 65, "no_such_message": 65,
		"not_found": 65, "method_not_allowed": 1, "not_leased": 1, "lease_mismatch": 1, "body_too_large": 65, "misdirected": 1, "id_conflict": 65, "hook_rejected": 65,
		"rate_limited": 75, "queue_full": 75, "busy": 75, "storage_full": 75,
	}
	for _, code := range agentrelay.Codes() {
		status, ok := want[code]
		if got := exitStatus(&agentrelay.Error{Code: code}); !ok || got != status {
			t.Errorf("%s ends with %d, want %d", code, got, status)
		}
	}
}

func TestReport(t *testing.T) {
	for want, err := range map[string]error{
		"":                                    nil,
		"agent-relay: EOF\n":                  io.EOF,
		"agent-relay: interrupted\n":          fmt.Errorf("poll: %w", context.Canceled),
		"agent-relay: a\ufffd[31mb\n\ufffd\n": errors.New("a\x1b[31mb\n\u0085"),
		"agent-relay: a\nb\ufffdc\n":          errors.New("a\r\nb\rc"),
		"agent-relay: wait (try again in 5s)\n": &agentrelay.Error{
			Code: agentrelay.CodeLocked, Message: "wait", RetryAfter: 5 * time.Second,
		},
		"agent-relay: nobody; did you mean ab or cd?\n": &agentrelay.Error{
			Code: agentrelay.CodeNoSuchAgent, Message: "nobody", Suggestions: []string{"ab", "cd"},
		},
		"agent-relay: nobody, but ab; did you mean cd?\n": &agentrelay.Error{
			Code: agentrelay.CodeNoSuchAgent, Message: "nobody, but ab", Suggestions: []string{"ab", "cd"},
		},
	} {
		var stderr bytes.Buffer
		a := &app{stderr: &stderr}
		if status := a.report(err); status == 0 != (err == nil) {
			t.Errorf("%v ends with %d", err, status)
		}
		if stderr.String() != want {
			t.Errorf("%v is told as %q, want %q", err, stderr.String(), want)
		}
	}
	var stderr bytes.Buffer
	a := &app{stderr: &stderr}
	if status := a.report(&exitError{status: 7}); status != 7 || stderr.Len() > 0 {
		t.Errorf("status %d, told %q", status, stderr.String())
	}
}

func TestLookup(t *testing.T) {
	env := lookup([]string{"A=1", "B=x=y", "A=2", "EMPTY=", "NOVALUE", "=C:=C:\\"})
	for name, want := range map[string]string{"A": "2", "B": "x=y", "EMPTY": "", "NOVALUE": "", "C": ""} {
		if got := env(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
