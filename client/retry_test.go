package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	return next()
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
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []func() (*http.Response, error){
			answers(429, `{"error":{"code":"rate_limited","message":"x"}}`, "Retry-After", "60"),
			answers(200, `{"ok":true,"agent":"alpha"}`),
		}}
		if err := retrying(t, s, nil).Register(t.Context()); err != nil || s.at[1].Sub(s.at[0]) != time.Minute {
			t.Errorf("%v, after %v", err, s.at)
		}
	})
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

// skewed refuses as a broker does whose clock is ahead of the request's by so
// much.
func skewed(ahead time.Duration) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		clock := time.Now().Add(ahead)
		return answers(401, fmt.Sprintf(`{"error":{"code":"unauthenticated","reason":"timestamp_skew","message":"x","serverTime":%d.250,"skewSeconds":1}}`, clock.Unix()))()
	}
}

func TestClockIsCorrectedOnce(t *testing.T) {
	registered := answers(200, `{"ok":true,"agent":"alpha"}`)
	for _, ahead := range []time.Duration{12 * time.Hour, -300500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := &scripted{answers: []func() (*http.Response, error){skewed(ahead), registered, registered}}
			c := retrying(t, s, nil)
			for range 2 { // the second call knows
				if err := c.Register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if time.Since(began) != 0 {
				t.Error("correcting the clock needs no pause")
			}
			for _, stamp := range s.stamps[1:] {
				parsed, err := agentrelay.ParseTimestamp(stamp)
				if err != nil || parsed.CheckSkew(began.Add(ahead)) != nil || !parsed.Fractional() {
					t.Errorf("the timestamp is %s, %v", stamp, err)
				}
			}
		})
	}
}

func TestClockRefusedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answers: []func() (*http.Response, error){skewed(time.Hour), skewed(2 * time.Hour), answers(200, `{"ok":true,"agent":"alpha"}`)}}
		c := retrying(t, s, nil)
		if err := c.Register(t.Context()); !errors.Is(err, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonTimestampSkew}) {
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

func TestProgressFile(t *testing.T) {
	path := t.TempDir() + "/made/progress.json"
	f := ProgressFile(path)
	if p, err := f.Load(t.Context()); err != nil || p.Cursor != "" {
		t.Fatalf("%+v, %v", p, err)
	}
	want := Progress{Cursor: "cursor:ab:7", Seen: []string{"a", "b"}}
	if err := f.Save(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Load(t.Context()); err != nil || got.Cursor != want.Cursor || strings.Join(got.Seen, " ") != "a b" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := writeFile(path, "not JSON"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "remove it to begin with the oldest message") {
		t.Errorf("a damaged file answers %v", err)
	}
	if err := ProgressFile(path+"/below/a/file").Save(t.Context(), want); err == nil {
		t.Error("a progress file that cannot be written is no error")
	}
}

func TestRecallIsBounded(t *testing.T) {
	r := newRecall(Progress{})
	for i := range 2 * maxRemembered {
		r.add(fmt.Sprint(i))
		r.add(fmt.Sprint(i))
	}
	if len(r.order) != maxRemembered || len(r.seen) != maxRemembered || !r.seen[fmt.Sprint(maxRemembered)] || r.seen["0"] {
		t.Errorf("%d ids in order, %d seen", len(r.order), len(r.seen))
	}
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
