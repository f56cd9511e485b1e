package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// sized is an envelope of exactly n bytes.
func sized(to, id string, n int) string {
	head := fmt.Sprintf(`{"to":%q,"id":%q,"body":"`, to, id)
	return head + strings.Repeat("x", n-len(head)-2) + `"}`
}

// wantUsable checks that a connection serves another request, or that the
// server closed it without cutting an answer off.
func (r *relay) wantUsable(c *conn) {
	r.t.Helper()
	if _, err := c.Write(r.render(call{target: "/", unsigned: true})); err != nil {
		r.t.Fatalf("the connection is broken: %v", err)
	}
	a, err := c.tryReceive(http.MethodGet)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return
	}
	if err != nil {
		r.t.Fatalf("the connection was reset: %v", err)
	}
	a.want(http.StatusOK, nil)
}

func TestBodyAtTheLimit(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.agent("ben")
	ann.post("/messages", sized("ben", "exact", maxBody)).want(http.StatusCreated, nil)
	c := r.dial()
	c.send(r.render(chunked(call{agent: "ann", method: http.MethodPost, target: "/messages"}, sized("ben", "chunks", maxBody))))
	c.receive(http.MethodPost).want(http.StatusCreated, nil)
	r.wantUsable(c)
}

// A declared length over the limit is answered while the body is yet to come.
func TestDeclaredBodyOverTheLimit(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	r.agent("ben")
	body := sized("ben", "over", maxBody+1)
	raw := string(r.render(call{agent: "ann", method: http.MethodPost, target: "/messages", body: body}))
	head := strings.TrimSuffix(raw, body)
	c := r.dial()
	c.send([]byte(head))
	f := c.receive(http.MethodPost).wantError(http.StatusRequestEntityTooLarge, agentrelay.CodeBodyTooLarge)
	if !strings.Contains(f.Message, "1048576") {
		t.Errorf("the message does not name the limit: %s", f.Message)
	}
	c.send([]byte(body))
	r.wantUsable(c)

	// A length that no body could have costs nothing either.
	c = r.dial()
	c.send([]byte(strings.Replace(head, fmt.Sprint(len(body)), "9223372036854775807", 1)))
	c.receive(http.MethodPost).wantError(http.StatusRequestEntityTooLarge, agentrelay.CodeBodyTooLarge)
}

// Many clients write all of a request before they read anything.
func TestClientThatWritesFirstReadsTheRefusal(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	post := call{agent: "ann", method: http.MethodPost, target: "/messages"}
	for name, c := range map[string]struct {
		raw    []byte
		status int
	}{
		"declared":     {r.render(withBody(post, sized("ben", "over", maxBody+1))), http.StatusRequestEntityTooLarge},
		"chunked":      {r.render(chunked(post, sized("ben", "over", maxBody+1))), http.StatusRequestEntityTooLarge},
		"far over":     {r.render(chunked(post, sized("ben", "over", 4*maxBody))), http.StatusRequestEntityTooLarge},
		"unsigned":     {r.render(call{unsigned: true, method: http.MethodPost, target: "/messages", body: sized("ben", "over", maxBody)}), http.StatusUnauthorized},
		"other host":   {r.render(withBody(call{host: "example", method: http.MethodPost, target: "/"}, sized("ben", "over", maxBody))), http.StatusMisdirectedRequest},
		"public route": {r.render(call{unsigned: true, target: "/", body: sized("ben", "over", maxBody)}), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			conn := r.dial()
			conn.t = t
			conn.send(c.raw)
			conn.receive(http.MethodPost).want(c.status, nil)
			r.wantUsable(conn)
		})
	}
}

func withBody(c call, body string) call {
	c.body = body
	return c
}

// Whoever asks before sending a body is told the answer, and sends none.
func TestExpectContinue(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	r.agent("ben")
	body := sized("ben", "asked", 1000)
	ask := call{agent: "ann", method: http.MethodPost, target: "/messages", body: body, header: []string{"Expect: 100-continue"}}
	head := strings.TrimSuffix(string(r.render(ask)), body)

	c := r.dial()
	c.send([]byte(head))
	line, err := c.reader.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v; want 100 Continue", line, err)
	}
	if _, err := c.reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.send([]byte(body))
	c.receive(http.MethodPost).want(http.StatusCreated, nil)

	c = r.dial()
	c.send([]byte(strings.Replace(head, fmt.Sprint(len(body)), fmt.Sprint(maxBody+1), 1)))
	c.receive(http.MethodPost).wantError(http.StatusRequestEntityTooLarge, agentrelay.CodeBodyTooLarge)
	if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection goes on with %v, want its end: nobody knows whether the body comes", err)
	}
}

// Bodies that come slowly, or not at all, hold up nobody else.
func TestSlowBodiesHoldNothingUp(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	body := sized("ben", "slow", maxBody)
	head := strings.TrimSuffix(string(r.render(call{agent: "ann", method: http.MethodPost, target: "/messages", body: body})), body)
	const slow = 64
	arrived := make(chan struct{}, slow)
	r.watch(func(*http.Request) { arrived <- struct{}{} })
	conns := make([]*conn, slow)
	for i := range conns {
		conns[i] = r.dial()
		conns[i].send([]byte(head + body[:1]))
	}
	for range conns {
		<-arrived
	}
	r.watch(nil)
	for i := range 20 {
		for _, c := range conns {
			c.send([]byte(body[i+1 : i+2]))
		}
		id := fmt.Sprintf("quick-%d", i)
		ann.send(ben, id)
		if p := ben.poll("?limit=200"); len(p.Messages) != i+1 || p.Messages[i].ID != id {
			t.Fatalf("a poll finds %v", idsOf(p.Messages))
		}
	}
	// The slow ones are not forgotten.
	conns[0].send([]byte(body[21:]))
	conns[0].receive(http.MethodPost).want(http.StatusCreated, nil)
	for _, c := range conns[1:] {
		_ = c.Close()
	}
	for _, c := range conns[1:] {
		r.waitClosed(c)
	}
	ann.wantState("slow", "queued", 0)
}

// A body that breaks off is no request.
func TestClientGoneInTheMiddleOfItsBody(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	r.agent("ben")
	whole := call{agent: "ann", method: http.MethodPost, target: "/messages", body: `{"to":"ben","id":"broken"}`}
	raw := r.render(whole)
	for _, abrupt := range []bool{false, true} {
		c := r.dial()
		c.send(raw[:len(raw)-1])
		if abrupt {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
		r.waitClosed(c)
	}
	// One that only stops sending is told.
	c := r.dial()
	c.send(raw[:len(raw)-1])
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.receive(http.MethodPost).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	// So is one whose chunks make no sense.
	c = r.dial()
	c.send(r.render(call{agent: "ann", method: http.MethodPost, target: "/messages", length: -1, header: []string{"Transfer-Encoding: chunked"}, body: "zz\r\n"}))
	c.receive(http.MethodPost).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	ann.wantState("broken", "not_found", 0)
}

// badBodies is what every POST gets sent at some time.
var badBodies = []string{
	`null`, `[]`, `"x"`, `1`, `true`, ``, ` `, `{`, `{} {}`, `{}x`, `{"a":1,}`, `{'a':1}`, `{"a":NaN}`, "\xff", "{\"a\":\"\xff\"}", "\ufeff{}",
	`{"agent":"ben"}`, `{"agent":1}`, strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20000),
}

func TestBadBodiesOnEveryRoute(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	for _, c := range everyRoute {
		if c.method != http.MethodPost {
			continue
		}
		for _, body := range badBodies {
			c.agent, c.body = "ann", body
			a := r.do(c)
			blank := strings.TrimSpace(body) == ""
			optional := c.target == "/register" || c.target == "/v1/pull" || c.target == "/v1/recent" || c.target == "/v1/messages/query"
			switch {
			case blank && optional:
				a.want(http.StatusOK, nil)
			case blank && strings.HasPrefix(c.target, "/messages/"):
				a.wantError(http.StatusNotFound, agentrelay.CodeNoSuchMessage)
			default:
				a.wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
			}
		}
	}
	r.do(call{target: "/", unsigned: true}).want(http.StatusOK, nil)
}

// An answer to a client that closed its side is true, or says what became of
// the request.
func TestClientThatSendsNoMore(t *testing.T) {
	r := newRelay(t, setup{})
	r.agent("ann")
	ben := r.agent("ben")
	half := func(q call) answer {
		c := r.dial()
		c.send(r.render(q))
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		return c.receive(q.method)
	}
	half(call{agent: "ann", method: http.MethodPost, target: "/messages", body: `{"to":"ben","id":"m"}`}).want(http.StatusCreated, nil)
	half(call{agent: "ann", method: http.MethodPost, target: "/messages", body: `{"to":"nobody"}`}).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
	half(call{agent: "ann", target: "/messages?wait=60"}).wantError(http.StatusServiceUnavailable, agentrelay.CodeBusy)

	// It may be gone, so it gets no lease, and is told that.
	gone := make(chan (<-chan struct{}), 1)
	r.watch(func(q *http.Request) { gone <- q.Context().Done() })
	r.store.set(func(s *spy) {
		s.afterLease = func() {
			select {
			case <-<-gone:
			case <-time.After(patience):
			}
		}
	})
	half(call{agent: "ben", method: http.MethodPost, target: "/v1/pull"}).wantError(http.StatusServiceUnavailable, agentrelay.CodeBusy)
	r.watch(nil)
	r.store.set(func(s *spy) { s.afterLease = nil })
	ben.wantState("m", "queued", 0)
}
