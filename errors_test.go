package agentrelay

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

func TestErrorIs(t *testing.T) {
	err := fmt.Errorf("send: %w", &Error{Code: CodeNoSuchAgent, Message: "nobody of that name", Err: io.EOF})
	if !errors.Is(err, ErrNoSuchAgent) {
		t.Error("the code is not compared")
	}
	if !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
	for _, other := range []error{ErrNoSuchMessage, ErrBadRequest, io.ErrUnexpectedEOF} {
		if errors.Is(err, other) {
			t.Errorf("it also is %v", other)
		}
	}
	skew := &Error{Code: CodeUnauthenticated, Reason: ReasonTimestampSkew}
	if !errors.Is(skew, ErrUnauthenticated) {
		t.Error("a target without a reason asks for none")
	}
	if !errors.Is(skew, &Error{Code: CodeUnauthenticated, Reason: ReasonTimestampSkew}) {
		t.Error("the same reason is not the same")
	}
	if errors.Is(skew, &Error{Code: CodeUnauthenticated, Reason: ReasonBadSignature}) {
		t.Error("another reason is the same")
	}
}

func TestErrorText(t *testing.T) {
	for want, e := range map[string]*Error{
		"say this":      {Code: CodeBusy, Message: "say this"},
		"say this: EOF": {Code: CodeBusy, Message: "say this", Err: io.EOF},
		"busy":          {Code: CodeBusy},
		"busy: EOF":     {Code: CodeBusy, Err: io.EOF},
	} {
		if e.Error() != want {
			t.Errorf("text %q, want %q", e.Error(), want)
		}
	}
}

func TestWrap(t *testing.T) {
	inner := &Error{Code: CodeIDConflict, Message: "used"}
	if got := Wrap(fmt.Errorf("enqueue: %w", inner)); got != inner {
		t.Errorf("%v is no longer the error it was", got)
	}
	got := Wrap(io.ErrClosedPipe)
	if got.Code != CodeBusy || got.RetryAfter != time.Second || !errors.Is(got, io.ErrClosedPipe) {
		t.Errorf("an internal fault becomes %+v", got)
	}
	if got.Message == "" || got.Message == io.ErrClosedPipe.Error() {
		t.Errorf("public text %q", got.Message)
	}
}

func TestCodes(t *testing.T) {
	seen := map[Code]bool{}
	for _, code := range Codes() {
		if code == "" || seen[code] {
			t.Errorf("code %q is empty or there twice", code)
		}
		seen[code] = true
	}
	for _, e := range []*Error{
		ErrBadRequest, ErrUnauthenticated, ErrLocked, ErrForbidden, ErrNoSuchAgent, ErrNoSuchMessage, ErrNotLeased,
		ErrLeaseMismatch, ErrBodyTooLarge, ErrIDConflict, ErrRateLimited, ErrBusy, ErrStorageFull,
	} {
		if !seen[e.Code] {
			t.Errorf("code %q is not listed", e.Code)
		}
		if !errors.Is(&Error{Code: e.Code}, e) {
			t.Errorf("code %q is not its own error", e.Code)
		}
	}
}
