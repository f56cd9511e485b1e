package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// call is one request to the broker.
type call struct {
	method string
	// target is what stands on the request line: path and query, escaped.
	target string
	body   []byte
	// wait is how long the broker may hold the answer.
	wait time.Duration
	// public calls are not signed.
	public bool
}

// answer is what came back, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	// trusted says that it was signed for this call, or need not be.
	trusted bool
}

// once makes a call a single time. An error answer is returned as
// *agentrelay.Error. A success that is not signed is as good as none.
func (c *Client) once(ctx context.Context, k call, result any, sound func() bool) error {
	a, err := c.roundTrip(ctx, k)
	switch {
	case err != nil:
		return err
	case a.status < 200 || a.status > 299:
		return c.answerError(a)
	case !a.trusted && json.Valid(a.body):
		return c.unsigned(a, "")
	case json.Unmarshal(a.body, result) != nil || !sound():
		return c.notRelay(a)
	}
	return nil
}

// roundTrip makes a request, and, where a connection that was kept turns out to
// be dead, another one under a signature of its own: a broker takes each
// signature once. All calls may be repeated but for a pull, whose answer may
// have been lost.
func (c *Client) roundTrip(ctx context.Context, k call) (answer, error) {
	limit := c.timeout + k.wait
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reused := false
	limited = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	a, err := c.exchange(limited, k)
	if errors.Is(err, errBroken) && reused && k.target != pullTarget && limited.Err() == nil {
		a, err = c.exchange(limited, k)
	}
	if errors.Is(err, errBroken) {
		err = c.transportError(ctx, limit, err)
	}
	return a, err
}

// errBroken says that there is no answer, or not all of it.
var errBroken = errors.New("broken")

// exchange sends one request and reads its answer.
func (c *Client) exchange(ctx context.Context, k call) (answer, error) {
	req, err := c.newRequest(ctx, k)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, &fault{kind: errBroken, cause: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswerBytes+1))
	if err != nil {
		return answer{}, &fault{kind: errBroken, cause: err}
	}
	if int64(len(body)) > c.maxAnswerBytes {
		return answer{}, fmt.Errorf("the answer of %s is larger than the %d bytes allowed; ask for fewer messages or allow more", c.base, c.maxAnswerBytes)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: body}
	a.trusted = k.public || c.allowUnsigned || agentrelay.VerifyAnswer(c.secret,
		req.Header.Get(agentrelay.HeaderSignature), a.status, body, resp.Header.Get(agentrelay.HeaderSignature))
	return a, nil
}

// unrepeatable is the body of a request that has none. net/http repeats a GET
// without a body by itself, with the same signature; one with a body it cannot
// get anew it does not.
type unrepeatable struct{}

func (unrepeatable) Read([]byte) (int, error) { return 0, io.EOF }

func (c *Client) newRequest(ctx context.Context, k call) (*http.Request, error) {
	var body io.Reader
	switch {
	case k.body != nil:
		body = bytes.NewReader(k.body)
	case k.method == http.MethodGet:
		body = unrepeatable{}
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.base+k.target, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("User-Agent", c.userAgent)
	req.Header.Set("Accept", "application/json")
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	if k.public {
		return req, nil
	}
	timestamp := c.timestamp()
	req.Header.Set(agentrelay.HeaderAgent, c.agent)
	req.Header.Set(agentrelay.HeaderTimestamp, timestamp)
	// RequestURI is what net/http writes on the request line.
	req.Header.Set(agentrelay.HeaderSignature, agentrelay.Sign(c.secret, k.method, req.URL.RequestURI(), timestamp, k.body))
	return req, nil
}

// timestamp is the broker's clock to the microsecond and three random digits,
// and later than the one before: a broker takes each signature once, and clocks
// are too coarse to make each one of its kind.
func (c *Client) timestamp() string {
	now := c.now().Add(time.Duration(c.offset.Load())).Truncate(time.Microsecond)
	stamp := now.UnixNano() + rand.Int64N(1000)
	for {
		last := c.lastStamp.Load()
		if ahead := last - stamp; 0 <= ahead && ahead < int64(time.Millisecond) {
			stamp = last + 1 + rand.Int64N(1000)
		}
		if c.lastStamp.CompareAndSwap(last, stamp) {
			return fmt.Sprintf("%d.%09d", stamp/1e9, stamp%1e9)
		}
	}
}

// wholeSeconds rounds up: a caller that asks for a bit gets no less.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// waitFor is how long the broker will hold an answer at most.
func waitFor(d time.Duration) time.Duration {
	return max(0, min(d, agentrelay.MaxWaitSeconds*time.Second))
}

var errNoID = errors.New("the message id is missing")
