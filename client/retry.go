package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// NoRetries is what Options.Pauses may be for calls that are tried once.
var NoRetries = []time.Duration{}

// defaultPauses are the pauses before a call is tried again.
var defaultPauses = []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}

// do makes a call, again while that may help, and reads its answer into
// result; sound then tells whether that is what a broker answers. Each try is
// signed anew and carries the same body, and with it the same message id. What
// it returns is the error of the last try; one that ends with ctx is that of
// ctx, too.
func (c *Client) do(ctx context.Context, k call, result any, sound func() bool) error {
	corrected := false
	for try := 0; ; {
		err := c.once(ctx, k, result, sound)
		if err == nil {
			return nil
		}
		if c.correctClock(err) && !corrected {
			corrected = true
			continue
		}
		pause, again := c.pauseAfter(try, err)
		if deadline, ok := ctx.Deadline(); !again || ok && time.Until(deadline) <= pause {
			return err
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("%w; before that: %w", ctx.Err(), err)
		}
		try++
	}
}

// correctClock learns the broker's clock from a refusal that a new signature by
// that clock may mend; nothing else tells it. The offset is made anew each time,
// so that a local clock that is set right later is noticed.
func (c *Client) correctClock(err error) bool {
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.ServerTime.IsZero() {
		return false
	}
	switch e.Reason {
	case agentrelay.ReasonTimestampSkew, agentrelay.ReasonReplayed, agentrelay.ReasonBeforeStart:
		c.offset.Store(int64(e.ServerTime.Sub(c.now())))
		return true
	}
	return false
}

// pauseAfter is how long to wait after a failure, and whether to try again.
func (c *Client) pauseAfter(try int, err error) (time.Duration, bool) {
	if try >= len(c.pauses) || !Passing(err) {
		return 0, false
	}
	return max(jitter(c.pauses[try]), retryAfterOf(err)), true
}

// Passing reports whether the same call may succeed later: no broker answered,
// or it answered that it is busy, out of room or asked too often.
func Passing(err error) bool {
	var f *fault
	if errors.As(err, &f) && passingStatus(f.status) {
		return true
	}
	var e *agentrelay.Error
	if errors.As(err, &e) {
		return passingCode(e.Code)
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTimeout)
}

func passingCode(code agentrelay.Code) bool {
	switch code {
	case agentrelay.CodeBusy, agentrelay.CodeRateLimited, agentrelay.CodeQueueFull, agentrelay.CodeStorageFull:
		return true
	}
	return false
}

func passingStatus(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

func retryAfterOf(err error) time.Duration {
	var f *fault
	if errors.As(err, &f) && f.retryAfter > 0 {
		return f.retryAfter
	}
	var e *agentrelay.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// jitter spreads d by a fifth, so that clients that failed together do not
// come back together.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}

// sleep waits. It reports false if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

const (
	// firstBackoff and lastBackoff bound the pauses of what runs on while the
	// broker is away.
	firstBackoff = 2 * time.Second
	lastBackoff  = 30 * time.Second
)

// backoff is the next pause while the broker is away.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

func (b *backoff) pause(err error) time.Duration {
	b.next = min(max(2*b.next, firstBackoff), lastBackoff)
	return max(jitter(b.next), retryAfterOf(err))
}
