package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// scripted answers each request with the next of its answers, and notes when
// and what it was asked.
type scripted struct {
	answers []func() (*http.Response, error)
	at      []time.Time
	bodies  []string
	stamps  []string
	signed  []string
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Now())
	s.stamps = append(s.stamps, r.Header.Get(agentrelay.HeaderTimestamp))
	s.signed = append(s.signed, r.Header.Get(agentrelay.HeaderSignature))
	body := ""
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(data)
	}
	s.bodies = append(s.bodies, body)
	if len(s.answers) == 0 {
		return nil, errors.New("no more was expected")
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	resp, err := next()
	return signed(r, resp, err)
}

func answers(status int, body string, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(bytes.NewBufferString(body))}, nil
	}
}

func breaks() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

const (
	accepted   = `{"accepted":true,"id":"m1","duplicate":false,"recipient":{"online":true,"lastSeen":1}}`
	busyAnswer = `{"error":{"code":"busy","message":"later"}}`
)

func retrying(t *testing.T, s *scripted, now func() time.Time) *Client {
	t.Helper()
	c, err := New(Options{Agent: "alpha", Secret: testSecret, Transport: s, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRetries(t *testing.T) {
	for name, failing := range map[string]func() (*http.Response, error){
		"busy":                 answers(503, busyAnswer),
		"full":                 answers(507, `{"error":{"code":"storage_full","message":"full"}}`),
		"too often":            answers(429, `{"error":{"code":"rate_limited","message":"slowly"}}`),
		"a proxy's 502":        answers(502, "<html>"),
		"a proxy's time limit": answers(408, ""),
		"a proxy's 429":        answers(429, "<html>"),
		"a 500 without a body": answers(500, ""),
		"a code not known yet": answers(599, `{"error":{"code":"quite_new","message":"m"}}`),
		"another 429":          answers(429, `{"error":{"code":"quite_new","message":"m"}}`),
		"a broken connection":  breaks,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: []func() (*http.Response, error){failing, failing, failing, answers(201, accepted)}}
				sent, err := retrying(t, s, nil).Send(t.Context(), Outgoing{ID: "m1", To: "beta"})
				if err != nil || sent.ID != "m1" {
					t.Fatalf("%+v, %v", sent, err)
				}
				for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
					if got := s.at[i+1].Sub(s.at[i]); got < want*4/5 || got > want*6/5 {
						t.Errorf("pause %d is %v, want about %v", i+1, got, want)
					}
					if s.bodies[i+1] != s.bodies[0] {
						t.Errorf("try %d sends another body", i+2)
					}
					if s.signed[i+1] == s.signed[i] {
						t.Errorf("try %d is not signed anew", i+2)
					}
				}
			})
		})
	}
}

func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answers(503, busyAnswer)
		s := &scripted{answers: []func() (*http.Response, error){busy, busy, busy, busy}}
		if err := retrying(t, s, nil).Register(t.Context()); !errors.Is(err, agentrelay.ErrBusy) || len(s.at) != 4 {
			t.Errorf("%d tries, %v", len(s.at), err)
		}
	})
}

func TestNoRetryWhereItDoesNotHelp(t *testing.T) {
	for _, answer := range []func() (*http.Response, error){
		answers(400, `{"error":{"code":"bad_request","message":"x"}}`),
		answers(401, `{"error":{"code":"unauthenticated","reason":"bad_signature","message":"x"}}`),
		answers(403, `{"error":{"code":"locked","message":"x"}}`),
		answers(404, `{"error":{"code":"no_such_agent","message":"x"}}`),
		answers(422, `{"error":{"code":"id_conflict","message":"x"}}`),
		answers(200, "<html>"),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{answers: []func() (*http.Response, error){answer}}
			if err := retrying(t, s, nil).Register(t.Context()); err == nil || len(s.at) != 1 {
				t.Errorf("%d tries, %v", len(s.at), err)
			}
		})
	}
}

func TestRetryAfterProlongsThePause(t *testing.T) {
	for name, c := range map[string]struct {
		answer      func() (*http.Response, error)
		least, most time.Duration
	}{
		"longer":         {answers(429, `{"error":{"code":"rate_limited","message":"x"}}`, "Retry-After", "60"), time.Minute, time.Minute},
		"of a proxy":     {answers(503, "<html>", "Retry-After", "60"), time.Minute, time.Minute},
		"of a new code":  {answers(503, `{"error":{"code":"quite_new","message":"x"}}`, "Retry-After", "60"), time.Minute, time.Minute},
		"shorter":        {answers(503, busyAnswer, "Retry-After", "1"), 1600 * time.Millisecond, 2400 * time.Millisecond},
		"not in seconds": {answers(503, busyAnswer, "Retry-After", "Thu, 01 Jan 2099 00:00:00 GMT"), 1600 * time.Millisecond, 2400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{answers: []func() (*http.Response, error){c.answer, answers(200, `{"ok":true,"agent":"alpha"}`)}}
				if err := retrying(t, s, nil).Register(t.Context()); err != nil {
					t.Fatal(err)
				}
				if pause := s.at[1].Sub(s.at[0]); pause < c.least || pause > c.most {
					t.Errorf("the pause is %v, want %v to %v", pause, c.least, c.most)
				}
			})
		})
	}
}

func TestRetryStaysWithinTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		s := &scripted{answers: []func() (*http.Response, error){answers(503, busyAnswer)}}
		if err := retrying(t, s, nil).Register(ctx); !errors.Is(err, agentrelay.ErrBusy) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestCancelledBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		s := &scripted{answers: []func() (*http.Response, error){answers(503, busyAnswer)}}
		err := retrying(t, s, nil).Register(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, agentrelay.ErrBusy) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestPausesAreTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answers(503, busyAnswer)
		s := &scripted{answers: []func() (*http.Response, error){busy, busy}}
		c := newClient(t, Options{Transport: s, Pauses: []time.Duration{time.Hour}})
		if err := c.Register(t.Context()); !errors.Is(err, agentrelay.ErrBusy) || len(s.at) != 2 || s.at[1].Sub(s.at[0]) < 48*time.Minute {
			t.Errorf("%v; tried at %v", err, s.at)
		}
		s = &scripted{answers: []func() (*http.Response, error){busy}}
		if err := newClient(t, Options{Transport: s, Pauses: NoRetries}).Register(t.Context()); err == nil || len(s.at) != 1 {
			t.Errorf("without pauses: %d tries, %v", len(s.at), err)
		}
	})
	if _, err := New(Options{Agent: "alpha", Secret: "s", Pauses: []time.Duration{1, -time.Second}}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative pause answers %v", err)
	}
}

func TestPassing(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{ErrUnreachable, true},
		{fmt.Errorf("sending: %w", ErrTimeout), true},
		{ErrNotRelay, false},
		{&fault{kind: ErrNotRelay, status: 200}, false},
		{&fault{kind: ErrNotRelay, status: 404}, false},
		{&fault{kind: ErrNotRelay, status: 502}, true},
	} {
		if got := Passing(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	passing := map[agentrelay.Code]bool{agentrelay.CodeBusy: true, agentrelay.CodeRateLimited: true, agentrelay.CodeQueueFull: true, agentrelay.CodeStorageFull: true}
	for _, code := range agentrelay.Codes() {
		if got := Passing(fmt.Errorf("sending: %w", &agentrelay.Error{Code: code})); got != passing[code] {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// What is not known yet is still told apart by its code.
func TestNewCodesKeepTheirCode(t *testing.T) {
	s := &scripted{answers: []func() (*http.Response, error){answers(599, `{"error":{"code":"quite_new","message":"the moon is full"}}`)}}
	err := newClient(t, Options{Transport: s}).Register(t.Context())
	if !errors.Is(err, &agentrelay.Error{Code: "quite_new"}) || errors.Is(err, ErrNotRelay) || !strings.Contains(err.Error(), "the moon is full") {
		t.Errorf("%v", err)
	}
}

// clocked is a broker with a clock of its own, to which it holds timestamps.
type clocked struct {
	now    func() time.Time
	asked  int
	stamps []string
}

func (c *clocked) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked++
	text := r.Header.Get(agentrelay.HeaderTimestamp)
	c.stamps = append(c.stamps, text)
	stamp, err := agentrelay.ParseTimestamp(text)
	if err != nil {
		return nil, err
	}
	now := c.now()
	answer := refusesClock(now)
	if stamp.CheckSkew(now) == nil {
		answer = answers(200, `{"ok":true,"agent":"alpha"}`)
	}
	resp, err := answer()
	return signed(r, resp, err)
}

func refusesClock(now time.Time) func() (*http.Response, error) {
	return answers(401, fmt.Sprintf(
		`{"error":{"code":"unauthenticated","reason":"timestamp_skew","message":"x","serverTime":%d.%03d,"skewSeconds":1}}`,
		now.Unix(), now.Nanosecond()/int(time.Millisecond)))
}

var errSkew = &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonTimestampSkew}

func TestClockIsCorrectedOnce(t *testing.T) {
	for _, c := range []struct {
		off   time.Duration // the local clock's, from the broker's
		asked int           // by two calls
	}{
		{-12 * time.Hour, 3},
		{300500 * time.Millisecond, 3},
		{31 * time.Second, 3}, // timestamps with a fraction have 30 s
		{-31 * time.Second, 3},
		{29 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			broker := &clocked{now: time.Now}
			client, err := New(Options{
				Agent: "alpha", Secret: testSecret, Transport: broker,
				Now: func() time.Time { return time.Now().Add(c.off) },
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second call knows
				if err := client.Register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if broker.asked != c.asked || time.Since(began) != 0 {
				t.Errorf("a clock that is %v off: %d requests in %v, want %d at once", c.off, broker.asked, time.Since(began), c.asked)
			}
			for _, stamp := range broker.stamps {
				if parsed, err := agentrelay.ParseTimestamp(stamp); err != nil || !parsed.Fractional() {
					t.Errorf("the timestamp is %s, %v", stamp, err)
				}
			}
		})
	}
}

func TestClockThatIsSetRightLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := -12 * time.Hour
		broker := &clocked{now: time.Now}
		c := retrying(t, &scripted{}, func() time.Time { return time.Now().Add(off) })
		c.http.Transport = broker
		for _, set := range []time.Duration{off, 0, time.Hour, time.Hour} {
			off = set
			if err := c.Register(t.Context()); err != nil {
				t.Errorf("when the local clock is %v off: %v", set, err)
			}
		}
		if broker.asked != 7 {
			t.Errorf("%d requests, want one more for each of three changes", broker.asked)
		}
	})
}

// A correction does not use up a try.
func TestClockIsCorrectedAmongRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := answers(503, busyAnswer)
		s := &scripted{answers: []func() (*http.Response, error){
			busy, refusesClock(time.Now().Add(time.Hour)), busy, busy, answers(200, `{"ok":true,"agent":"alpha"}`),
		}}
		if err := retrying(t, s, nil).Register(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestClockRefusedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []func() (*http.Response, error){refusesClock(time.Now().Add(time.Hour)), refusesClock(time.Now().Add(2 * time.Hour)), answers(200, `{"ok":true,"agent":"alpha"}`)}}
		c := retrying(t, s, nil)
		if err := c.Register(t.Context()); !errors.Is(err, errSkew) || len(s.at) != 2 {
			t.Fatalf("a second refusal answers %v", err)
		}
		// The offset is that of the last refusal, not the sum of both.
		if err := c.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		parsed, err := agentrelay.ParseTimestamp(s.stamps[2])
		if err != nil || parsed.CheckSkew(time.Now().Add(2*time.Hour)) != nil {
			t.Errorf("the timestamp is %s, %v", s.stamps[2], err)
		}
	})
}

func TestBackoff(t *testing.T) {
	var b backoff
	for _, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
		want *= time.Second
		if got := b.pause(io.EOF); got < want*4/5 || got > want*6/5 {
			t.Errorf("the pause is %v, want about %v", got, want)
		}
	}
	if got := b.pause(&agentrelay.Error{Code: agentrelay.CodeBusy, RetryAfter: time.Hour}); got != time.Hour {
		t.Errorf("Retry-After gives %v", got)
	}
	b.reset()
	if got := b.pause(io.EOF); got > 3*time.Second {
		t.Errorf("after a success the pause is %v", got)
	}
}
