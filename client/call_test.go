package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestErrorAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		header []string
		want   agentrelay.Error
	}{
		{
			404, `{"error":{"code":"no_such_agent","message":"nobody","suggestions":["team-lead","team"]}}`, nil,
			agentrelay.Error{Code: agentrelay.CodeNoSuchAgent, Message: "nobody", Suggestions: []string{"team-lead", "team"}},
		},
		{
			401, `{"error":{"code":"unauthenticated","message":"skew","reason":"timestamp_skew","serverTime":1755250000.25,"skewSeconds":-301.5}}`, nil,
			agentrelay.Error{
				Code: agentrelay.CodeUnauthenticated, Message: "skew", Reason: agentrelay.ReasonTimestampSkew,
				ServerTime: time.Unix(1755250000, 250_000_000), Skew: -301500 * time.Millisecond,
			},
		},
		{
			429, `{"error":{"code":"rate_limited","message":"slow"}}`,
			[]string{"Retry-After", "7"},
			agentrelay.Error{Code: agentrelay.CodeRateLimited, Message: "slow", RetryAfter: 7 * time.Second},
		},
		{
			403, `{"error":{"code":"locked","message":"wait","more":{"x":1}}}`,
			[]string{"Retry-After", "soon"},
			agentrelay.Error{Code: agentrelay.CodeLocked, Message: "wait"},
		},
		{
			503, `{"error":{"code":"busy","message":""}}`,
			[]string{"Retry-After", "-1"},
			agentrelay.Error{Code: agentrelay.CodeBusy},
		},
		{
			// A code that a newer broker may have.
			418, `{"error":{"code":"quite_new","message":"m"}}`,
			[]string{"Retry-After", "99999999999"},
			agentrelay.Error{Code: "quite_new", Message: "m"},
		},
		{
			401, `{"error":{"code":"unauthenticated","message":"m","serverTime":1e300,"skewSeconds":1e300}}`, nil,
			agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Message: "m", Skew: 9223372036 * time.Second},
		},
	} {
		p := newPeer(t, says(c.status, c.body, c.header...))
		_, err := newClient(t, Options{URL: p.URL}).Peers(t.Context())
		var got *agentrelay.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if diff := cmp.Diff(&c.want, got, cmpopts.EquateApproxTime(time.Microsecond)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.body, diff)
		}
		if !errors.Is(err, &agentrelay.Error{Code: c.want.Code}) {
			t.Errorf("%s: the code is not compared", c.body)
		}
	}
}

func TestEveryCodeComesBack(t *testing.T) {
	for _, code := range agentrelay.Codes() {
		p := newPeer(t, says(400, `{"error":{"code":"`+string(code)+`","message":"m"}}`))
		err := newClient(t, Options{URL: p.URL}).Register(t.Context())
		if !errors.Is(err, &agentrelay.Error{Code: code}) {
			t.Errorf("%s comes back as %v", code, err)
		}
	}
}

func TestSomethingElseAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{404, "<html>not here</html>"},
		{404, `{"error":"not found"}`},
		{404, `{"message":"Not Found"}`},
		{400, `{"error":{"message":"no code"}}`},
		{400, `{"error":{"code":7,"message":"m"}}`},
		{500, ``},
		{502, `null`},
		{200, `<html>welcome</html>`},
		{200, ``},
		{200, `null`},
		{200, `[]`},
		{200, `{}`},
		{200, `{"peers":null}`},
		{200, `{"peers":{}}`},
		{200, `{"peers":[]}{}`},
		{302, `{"peers":[]}`},
		{204, ``},
		// An error that calls itself a success is neither.
		{302, `{"error":{"code":"busy","message":"m"}}`},
	} {
		p := newPeer(t, says(c.status, c.body))
		_, err := newClient(t, Options{URL: p.URL}).Peers(t.Context())
		if !errors.Is(err, ErrNotRelay) || !strings.Contains(err.Error(), "something else answers at "+p.URL) {
			t.Errorf("%d %q: %v", c.status, c.body, err)
		}
		var answer *agentrelay.Error
		if errors.As(err, &answer) {
			t.Errorf("%d %q is taken as a broker's error %v", c.status, c.body, answer)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		p := newPeer(t, says(status, ``, "Location", elsewhere.URL))
		_, err := newClient(t, Options{URL: p.URL}).Send(t.Context(), Outgoing{To: "beta"})
		if !errors.Is(err, ErrNotRelay) || followed {
			t.Errorf("%d: %v, followed %v", status, err, followed)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	listener.Close()
	_, err = newClient(t, Options{URL: url}).Handshake(t.Context())
	var cause *net.OpError
	if !errors.Is(err, ErrUnreachable) || !errors.As(err, &cause) {
		t.Fatalf("%v", err)
	}
	for _, says := range []string{url, "agent-relay setup start"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want %q", err, says)
		}
	}
}

// answerRaw serves one connection with these bytes and closes it.
func answerRaw(t *testing.T, text string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var b [1]byte
		_, _ = conn.Read(b[:])
		_, _ = io.WriteString(conn, text)
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return "http://" + listener.Addr().String()
}

func TestBrokenAnswers(t *testing.T) {
	for text, want := range map[string]error{
		"SSH-2.0-OpenSSH_9.6\r\n":  ErrNotRelay,
		"-ERR unknown command\r\n": ErrNotRelay,
		"":                         ErrUnreachable,
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"peers\":[": ErrUnreachable,
	} {
		_, err := newClient(t, Options{URL: answerRaw(t, text)}).Peers(t.Context())
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	// Plain HTTP where TLS is expected.
	p := newPeer(t, says(200, `{}`))
	_, err := newClient(t, Options{URL: strings.Replace(p.URL, "http:", "https:", 1)}).Peers(t.Context())
	if !errors.Is(err, ErrNotRelay) {
		t.Errorf("%v, want ErrNotRelay", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	const limit = 1000
	body := `{"peers":[]}`
	body += strings.Repeat(" ", limit-len(body))
	p := newPeer(t, says(200, body))
	c := newClient(t, Options{URL: p.URL, MaxAnswerBytes: limit})
	if _, err := c.Peers(t.Context()); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	p = newPeer(t, says(200, body+" "))
	c = newClient(t, Options{URL: p.URL, MaxAnswerBytes: limit})
	if _, err := c.Peers(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than the 1000 bytes") {
		t.Errorf("over the limit: %v", err)
	}
}

func TestTimeLimit(t *testing.T) {
	p := newPeer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := newClient(t, Options{URL: p.URL, Timeout: 20 * time.Millisecond}).Peers(t.Context())
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "within 20ms") {
		t.Errorf("%v", err)
	}
}

// deadlines tells the time limit of each request.
type deadlines struct{ last time.Duration }

func (d *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Deadline()
	d.last = time.Until(at)
	return nil, errors.New("no network here")
}

func TestTimeLimitIncludesTheWait(t *testing.T) {
	d := &deadlines{}
	c := newClient(t, Options{Transport: d, Timeout: 10 * time.Second})
	for want, wait := range map[time.Duration]time.Duration{
		10 * time.Second: 0,
		40 * time.Second: 30 * time.Second,
		70 * time.Second: time.Hour,
	} {
		_, pollErr := c.Poll(t.Context(), PollOptions{Wait: wait})
		if !errors.Is(pollErr, ErrUnreachable) || d.last > want || d.last < want-5*time.Second {
			t.Errorf("poll with wait %v: limit %v, want %v; %v", wait, d.last, want, pollErr)
		}
		_, pullErr := c.Pull(t.Context(), PullOptions{Wait: wait})
		if !errors.Is(pullErr, ErrUnreachable) || d.last > want || d.last < want-5*time.Second {
			t.Errorf("pull with wait %v: limit %v, want %v; %v", wait, d.last, want, pullErr)
		}
	}
}

func TestCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := newPeer(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := newClient(t, Options{URL: p.URL}).Poll(ctx, PollOptions{Wait: time.Minute})
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want the caller's cancellation", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	p = newPeer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err = newClient(t, Options{URL: p.URL}).Poll(ctx, PollOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTimeout) {
		t.Errorf("%v, want the caller's deadline", err)
	}
}

func TestCallsThatCannotBeMade(t *testing.T) {
	c := newClient(t, Options{Transport: noNetwork{t}})
	for _, k := range []call{{method: "NOT ONE", target: "/"}, {method: "GET", target: "/%zz"}} {
		if _, err := c.roundTrip(t.Context(), k); err == nil || !strings.Contains(err.Error(), "make the request") {
			t.Errorf("%+v: %v", k, err)
		}
	}
}

// forbidden is a transport in a sandbox.
type forbidden struct{ errno syscall.Errno }

func (f forbidden) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", f.errno)}
}

func TestSandbox(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EPERM: "a sandbox or a firewall forbids it", syscall.EACCES: "a sandbox or a firewall forbids it",
		syscall.ENETUNREACH: "no broker answers",
	} {
		_, err := newClient(t, Options{Transport: forbidden{errno}}).Handshake(t.Context())
		if !errors.Is(err, ErrUnreachable) || !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
