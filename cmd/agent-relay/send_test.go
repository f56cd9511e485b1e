package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBodyFromATerminal(t *testing.T) {
	// Like a terminal, the null device is a character device.
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a := &app{stdin: null}
	if _, err := a.body(t.Context(), nil, "", false); exitStatus(err) != exitUsage || !strings.Contains(err.Error(), "give TEXT or --body") {
		t.Errorf("nothing given: %v", err)
	}
	if body, err := a.body(t.Context(), []string{"x"}, "", false); err != nil || string(body) != `{"text":"x"}` {
		t.Errorf("text given: %s, %v", body, err)
	}
}

func TestBodyNewlines(t *testing.T) {
	for input, want := range map[string]string{
		"x": `x`, "x\n": `x`, "x\r\n": `x`, "x\n\n": `x\n`, "x\r": `x\r`, "x \n": `x `, "\n": ``, "a\r\nb\n": `a\r\nb`,
	} {
		a := &app{stdin: strings.NewReader(input)}
		if body, err := a.body(t.Context(), nil, "", false); err != nil || string(body) != `{"text":"`+want+`"}` {
			t.Errorf("%q becomes %s, %v", input, body, err)
		}
	}
	// JSON is taken as it is, and given text too.
	a := &app{stdin: strings.NewReader("[1]\n")}
	if body, err := a.body(t.Context(), nil, "-", true); err != nil || string(body) != "[1]\n" {
		t.Errorf("JSON from stdin is %q, %v", body, err)
	}
	if body, err := a.body(t.Context(), []string{"x\n"}, "", false); err != nil || string(body) != `{"text":"x\n"}` {
		t.Errorf("text is %s, %v", body, err)
	}
}

func TestBodyFailures(t *testing.T) {
	for says, input := range map[string]io.Reader{
		"read stdin: broken": iotest.ErrReader(errors.New("broken")),
		"stdin is empty":     strings.NewReader(""),
		"not valid UTF-8":    strings.NewReader("\xff"),
	} {
		a := &app{stdin: input}
		if _, err := a.body(t.Context(), []string{"-"}, "", false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func TestInputIsBounded(t *testing.T) {
	a := &app{stdin: strings.NewReader("12345678901")}
	if _, err := a.input(t.Context(), 10); exitStatus(err) != exitBadData || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("over the limit: %v", err)
	}
	a.stdin = strings.NewReader("1234567890")
	if data, err := a.input(t.Context(), 10); err != nil || len(data) != 10 {
		t.Errorf("at the limit: %q, %v", data, err)
	}
}

func TestInputEndsWithItsContext(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&app{stdin: r}).input(ctx, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// When it is unknown whether the message arrived, its id is told.
func TestSendTellsTheID(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, `{"protocol":"1.0"}`)
			return
		}
		panic(http.ErrAbortHandler) // the connection breaks
	}))
	defer server.Close()
	env := []string{"AGENT_RELAY_URL=" + server.URL, "AGENT_RELAY_AGENT=alpha", "AGENT_RELAY_SECRET=s"}
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"send", "beta", "x", "--id", "own-1"}, env, nil, &stdout, &stderr)
	if status != exitUnreachable || stdout.Len() > 0 || !strings.Contains(stderr.String(), "add --id own-1") {
		t.Errorf("status %d, stdout %q, stderr %q", status, &stdout, &stderr)
	}
}
