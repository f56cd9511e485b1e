package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// pipes is a listener whose connections need no network.
type pipes struct {
	conns chan net.Conn
	ended context.Context
	end   context.CancelFunc
}

func newPipes() *pipes {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipes{conns: make(chan net.Conn), ended: ctx, end: cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.end()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// dial returns the client's end of a new connection.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// servePipes has an http.Server serve the relay over pipes, inside a bubble
// whose time is not the machine's.
func (r *relay) servePipes() *pipes {
	p := newPipes()
	server := &http.Server{Handler: r.api, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(p) }()
	r.t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return p
}

// A body has 25 s to arrive, as a whole: a byte a second is not enough.
func TestBodyThatTrickles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		c := r.servePipes().dial()
		defer c.Close()
		raw := r.render(call{agent: "ann", method: http.MethodPost, target: "/messages", body: sized("ben", "slow", 1000)})
		head, body, _ := strings.Cut(string(raw), "\r\n\r\n")
		began := time.Now()
		trickled := make(chan struct{})
		go func() {
			defer close(trickled)
			_, err := io.WriteString(c, head+"\r\n\r\n")
			for i := 0; i < len(body) && err == nil; i++ {
				time.Sleep(time.Second) // the bubble's time
				_, err = io.WriteString(c, body[i:i+1])
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		answer{t: t, status: response.StatusCode, header: response.Header, body: string(text)}.
			wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("the answer came after %v, want 25 s", took)
		}
		_ = c.Close()
		<-trickled
	})
}

// A client that does not read its answer is let go; one whose poll waited long
// has time all the same.
func TestAnswerThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		pipes := r.servePipes()
		patient := pipes.dial()
		defer patient.Close()
		if _, err := patient.Write(r.render(call{agent: "ann", target: "/messages?wait=45"})); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(bufio.NewReader(patient), nil); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("after a long wait: %v", err)
		}
		deaf := pipes.dial()
		defer deaf.Close()
		if _, err := deaf.Write(r.render(call{agent: "ann", target: "/peers"})); err != nil {
			t.Fatal(err)
		}
		time.Sleep(answerTime + time.Second) // the bubble's time
		if _, err := http.ReadResponse(bufio.NewReader(deaf), nil); err == nil {
			t.Error("an answer is kept for a client that does not read it")
		}
	})
}

// The time for an answer ends with it: what is written for a later request of
// the connection, such as the word to go on, has its own.
func TestAnswerTimeEndsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		c := r.servePipes().dial()
		defer c.Close()
		reader := bufio.NewReader(c)
		say := func(raw []byte) {
			t.Helper()
			if _, err := c.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		hear := func(status int) {
			t.Helper()
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			if response.StatusCode != status {
				t.Errorf("got %d, want %d", response.StatusCode, status)
			}
		}
		say(r.render(call{agent: "ann", target: "/peers"}))
		hear(http.StatusOK)
		time.Sleep(answerTime + time.Second) // the bubble's time
		raw := r.render(call{agent: "ann", method: http.MethodPost, target: "/register", body: `{}`, header: []string{"Expect: 100-continue"}})
		head, body, _ := strings.Cut(string(raw), "\r\n\r\n")
		say([]byte(head + "\r\n\r\n"))
		hear(http.StatusContinue)
		say([]byte(body))
		hear(http.StatusOK)
	})
}

// answerTime is how long a client may take to read its answer.
const answerTime = 30 * time.Second

// A body in time is no reason to hurry the next request of its connection, nor
// to end a wait.
func TestBodyTimeLimitEndsWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		c := r.servePipes().dial()
		defer c.Close()
		reader := bufio.NewReader(c)
		for range 2 {
			raw := r.render(call{agent: "ann", method: http.MethodPost, target: "/v1/pull", body: `{"waitSeconds":60}`})
			if _, err := c.Write(raw); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || string(text) != `{"messages":[],"count":0}` {
				t.Fatalf("got %d %s, %v", response.StatusCode, text, err)
			}
			time.Sleep(45 * time.Second) // the bubble's time
		}
	})
}

// What is dropped of a refused body has its bounds, in time and in size.
func TestRefusedBodyIsDrainedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		server := r.servePipes()
		for name, c := range map[string]struct {
			pause time.Duration
			size  int
		}{"slow": {time.Second, 1}, "endless": {0, 64 << 10}} {
			conn := server.dial()
			raw := r.render(call{unsigned: true, method: http.MethodPost, target: "/messages", length: 1 << 30})
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			began := time.Now()
			if _, err := conn.Write(raw); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: the answer came after %v", name, took)
			}
			var sent int
			for sent < 64<<20 {
				n, err := conn.Write(bytes.Repeat([]byte("x"), c.size))
				sent += n
				if err != nil {
					break
				}
				time.Sleep(c.pause) // the bubble's time
			}
			_ = conn.Close()
			if took := time.Since(began); took > 4*time.Second || sent > 10<<20 {
				t.Errorf("%s: the broker went on reading for %v and %d bytes", name, took, sent)
			}
		}
	})
}

// Whoever asks before sending a body, and is refused, sends none: nobody waits
// for it.
func TestNothingIsDrainedThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		r.addr = "localhost"
		conn := r.servePipes().dial()
		defer conn.Close()
		began := time.Now()
		if _, err := conn.Write(r.render(call{unsigned: true, method: http.MethodPost, target: "/messages", length: 1 << 30, header: []string{"Expect: 100-continue"}})); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 413 ") {
			t.Errorf("got %q, %v", text, err)
		}
		if took := time.Since(began); took >= 2*time.Second {
			t.Errorf("the connection was held for %v", took)
		}
	})
}

// unwritable is a connection that takes an answer into its buffer and then
// fails to send it.
type unwritable struct{ *httptest.ResponseRecorder }

func (unwritable) FlushError() error { return io.ErrClosedPipe }

func TestLeasesOfAnAnswerThatCannotBeSent(t *testing.T) {
	r := openRelay(t, setup{})
	r.serveDirectly(call{agent: "ben", method: http.MethodPost, target: "/register"}).want(http.StatusOK, nil)
	if err := r.enqueue("ben", "m", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	pull := call{agent: "ben", method: http.MethodPost, target: "/v1/pull"}
	r.api.ServeHTTP(unwritable{httptest.NewRecorder()}, r.request(pull))
	if n := r.store.count("Release"); n != 1 {
		t.Errorf("leases were given back %d times, want once", n)
	}
	if a := r.serveDirectly(pull); a.messages() != 1 || !strings.Contains(a.body, `"attempts":0`) {
		t.Errorf("pulled again %s", a.body)
	}
}
