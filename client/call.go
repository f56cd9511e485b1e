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
}

// once makes a call a single time. An error answer is returned as
// *agentrelay.Error.
func (c *Client) once(ctx context.Context, k call, result any, sound func() bool) error {
	a, err := c.roundTrip(ctx, k)
	if err != nil {
		return err
	}
	if a.status < 200 || a.status > 299 {
		return c.answerError(a)
	}
	if json.Unmarshal(a.body, result) != nil || !sound() {
		return c.notRelay(a)
	}
	return nil
}

func (c *Client) roundTrip(ctx context.Context, k call) (answer, error) {
	limit := c.timeout + k.wait
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := c.newRequest(limited, k)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, c.transportError(ctx, limit, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswerBytes+1))
	if err != nil {
		return answer{}, c.transportError(ctx, limit, err)
	}
	if int64(len(body)) > c.maxAnswerBytes {
		return answer{}, fmt.Errorf("the answer of %s is larger than the %d bytes allowed; ask for fewer messages or allow more", c.base, c.maxAnswerBytes)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

func (c *Client) newRequest(ctx context.Context, k call) (*http.Request, error) {
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
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

// timestamp is the clock to the millisecond and six random digits, which make
// each signature one of its kind: clocks are too coarse for that.
func (c *Client) timestamp() string {
	now := c.now().Add(time.Duration(c.offset.Load()))
	return fmt.Sprintf("%d.%03d%06d", now.Unix(), now.Nanosecond()/int(time.Millisecond), rand.IntN(1e6))
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
