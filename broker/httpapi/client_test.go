package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// call is one request as it is to stand on the wire. What is left out is as a
// good client would have it.
type call struct {
	method, target, body string
	agent                string
	host                 string
	timestamp            string // default: the relay's clock, in whole seconds
	secret               string
	signature            string
	unsigned             bool     // no authentication at all
	header               []string // further lines
	length               int      // declared instead of the body's own, -1 for none
}

// complete fills in what is left out.
func (r *relay) complete(c call) call {
	if c.method == "" {
		c.method = http.MethodGet
	}
	if c.host == "" {
		c.host = r.addr
	}
	if c.timestamp == "" {
		c.timestamp = strconv.FormatInt(r.clock.Now().Unix(), 10)
	}
	if c.secret == "" {
		c.secret = secret
	}
	if c.signature == "" {
		c.signature = agentrelay.Sign(c.secret, c.method, c.target, c.timestamp, []byte(c.body))
	}
	if c.length == 0 {
		c.length = len(c.body)
	}
	return c
}

// render writes the request.
func (r *relay) render(c call) []byte {
	c = r.complete(c)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.method, c.target, c.host)
	if !c.unsigned {
		fmt.Fprintf(&b, "X-Relay-Agent: %s\r\nX-Relay-Timestamp: %s\r\nX-Relay-Signature: %s\r\n", c.agent, c.timestamp, c.signature)
	}
	if c.length > 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", c.length)
	}
	for _, line := range c.header {
		b.WriteString(line + "\r\n")
	}
	return []byte(b.String() + "\r\n" + c.body)
}

// conn is a client's connection.
type conn struct {
	*net.TCPConn
	t      testing.TB
	reader *bufio.Reader
}

// dial opens a connection that ends with the test.
func (r *relay) dial() *conn {
	r.t.Helper()
	c := r.connect()
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *relay) connect() *conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return &conn{TCPConn: c.(*net.TCPConn), t: r.t, reader: bufio.NewReader(c)}
}

func (c *conn) send(raw []byte) {
	c.t.Helper()
	if _, err := c.Write(raw); err != nil {
		c.t.Fatalf("send a request: %v", err)
	}
}

// receive reads one answer.
func (c *conn) receive(method string) answer {
	c.t.Helper()
	a, err := c.tryReceive(method)
	if err != nil {
		c.t.Fatalf("read an answer: %v", err)
	}
	return a
}

func (c *conn) tryReceive(method string) (answer, error) {
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(response.Body)
	return answer{t: c.t, status: response.StatusCode, header: response.Header, body: string(body), last: response.Close}, err
}

// do sends a request and reads its answer, on a connection that is kept.
func (r *relay) do(q call) answer {
	r.t.Helper()
	r.mu.Lock()
	var c *conn
	if n := len(r.idle); n > 0 {
		c, r.idle = r.idle[n-1], r.idle[:n-1]
	}
	r.mu.Unlock()
	if c == nil {
		c = r.connect()
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	q = r.complete(q)
	c.send(r.render(q))
	a := c.receive(q.method)
	a.wantSigned(q)
	if a.last {
		_ = c.Close()
		return a
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
	return a
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   string
	last   bool // the connection is over
}

// want checks the status and reads the body into a value, which may be nil.
func (a answer) want(status int, to any) {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got %d %.300s, want status %d", a.status, a.body, status)
	}
	if to == nil {
		return
	}
	if err := json.Unmarshal([]byte(a.body), to); err != nil {
		a.t.Fatalf("the answer %.300s cannot be read: %v", a.body, err)
	}
}

// wantBody checks the status and the whole body.
func (a answer) wantBody(status int, body string) {
	a.t.Helper()
	if a.status != status || a.body != body {
		a.t.Fatalf("got %d %.500s\nwant %d %s", a.status, a.body, status, body)
	}
}

// failure is the error member of an answer.
type failure struct {
	Code, Message, Reason   string
	ServerTime, SkewSeconds *json.Number
	Suggestions             *[]string
}

// wantError checks that an answer is an error of the protocol.
func (a answer) wantError(status int, code agentrelay.Code) failure {
	a.t.Helper()
	var wire struct{ Error failure }
	a.want(status, &wire)
	if wire.Error.Code != string(code) || wire.Error.Message == "" {
		a.t.Fatalf("got error %s, want code %s and a message", a.body, code)
	}
	a.wantHeaders()
	return wire.Error
}

// wantSigned checks that an answer has no signature but its own, and that a
// success has one, but on a public route.
func (a answer) wantSigned(q call) {
	a.t.Helper()
	signature := a.header.Get(agentrelay.HeaderSignature)
	if signature == "" {
		target, err := url.Parse(q.target)
		public := err == nil && slices.Contains([]string{"/", "/healthz", "/metrics"}, target.Path) || strings.HasPrefix(q.target, "/connectors/")
		if a.status < 300 && !public {
			a.t.Errorf("%s %s: the answer is not signed", q.method, q.target)
		}
		return
	}
	for _, line := range q.header {
		if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(name, agentrelay.HeaderSignature) {
			q.signature = value
		}
	}
	if !agentrelay.VerifyAnswer(q.secret, q.signature, a.status, []byte(a.body), signature) {
		a.t.Errorf("%s %s: the answer %d %.300s has another signature", q.method, q.target, a.status, a.body)
	}
}

// wantHeaders checks what every answer of the relay says of itself.
func (a answer) wantHeaders() {
	a.t.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store", "Content-Encoding": "",
	} {
		if got := a.header.Get(name); got != want {
			a.t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func (a answer) wantReason(reason agentrelay.Reason) failure {
	a.t.Helper()
	f := a.wantError(http.StatusUnauthorized, agentrelay.CodeUnauthenticated)
	if f.Reason != string(reason) {
		a.t.Fatalf("the reason is %q, want %q", f.Reason, reason)
	}
	return f
}

// agent makes calls under a name.
type agent struct {
	*relay
	name string
}

// agent returns a registered agent.
func (r *relay) agent(name string) agent {
	r.t.Helper()
	a := agent{r, name}
	a.post("/register", "").want(http.StatusOK, nil)
	return a
}

func (a agent) get(target string) answer {
	a.t.Helper()
	return a.do(call{agent: a.name, target: target})
}

func (a agent) post(target, body string) answer {
	a.t.Helper()
	return a.do(call{agent: a.name, method: http.MethodPost, target: target, body: body})
}

// send stores a message whose body is {"n":id}.
func (a agent) send(to agent, ids ...string) {
	a.t.Helper()
	for _, id := range ids {
		a.post("/messages", fmt.Sprintf(`{"to":%q,"id":%q,"body":{"n":%q}}`, to.name, id, id)).want(http.StatusCreated, nil)
	}
}

// envelope is a message as an answer shows it.
type envelope struct {
	ID, From, To, TS, Type string
	Body                   json.RawMessage
	ReplyTo                *string
	Ack                    bool
	Kind                   string
	RootID, ParentID       *string
	Status                 string
	Attempts               int
	LeaseUntil             *int64
	LeaseID                *string
	Error                  *string
}

// page is the answer to a poll.
type page struct {
	Messages []envelope
	Cursor   *string
	Reset    *bool
}

func (a agent) poll(query string) (p page) {
	a.t.Helper()
	a.get("/messages"+query).want(http.StatusOK, &p)
	return p
}

func (a agent) list(target, body string) []envelope {
	a.t.Helper()
	var list struct {
		Messages []envelope
		Count    int
	}
	a.post(target, body).want(http.StatusOK, &list)
	if list.Count != len(list.Messages) || list.Messages == nil {
		a.t.Fatalf("%s says count %d for %d messages", target, list.Count, len(list.Messages))
	}
	return list.Messages
}

func (a agent) pull(body string) []envelope {
	a.t.Helper()
	return a.list("/v1/pull", body)
}

// pullOne leases the only message there is.
func (a agent) pullOne(body string) envelope {
	a.t.Helper()
	list := a.pull(body)
	if len(list) != 1 || list[0].LeaseID == nil || list[0].LeaseUntil == nil {
		a.t.Fatalf("pulled %+v, want one leased message", list)
	}
	return list[0]
}

func (a agent) settle(m envelope, outcome string) answer {
	a.t.Helper()
	return a.post("/v1/ack", fmt.Sprintf(`{"messageId":%q,"leaseId":%q,"outcome":%q,"error":"why"}`, m.ID, *m.LeaseID, outcome))
}

// state is an entry of a status answer.
type state struct {
	ID, Status  string
	Attempts    int
	DeliveredAt string
}

func (a agent) state(id string) state {
	a.t.Helper()
	var list struct{ Messages []state }
	a.post("/v1/status", fmt.Sprintf(`{"messageIds":[%q]}`, id)).want(http.StatusOK, &list)
	if len(list.Messages) != 1 {
		a.t.Fatalf("the status of one message has %d entries", len(list.Messages))
	}
	return list.Messages[0]
}

func (a agent) wantState(id, status string, attempts int) {
	a.t.Helper()
	if s := a.state(id); s.Status != status || s.Attempts != attempts {
		a.t.Fatalf("message %s is %s with %d attempts, want %s with %d", id, s.Status, s.Attempts, status, attempts)
	}
}

func idsOf(list []envelope) []string {
	ids := make([]string, len(list))
	for i, m := range list {
		ids[i] = m.ID
	}
	return ids
}

// chunked makes a call whose body has no declared length.
func chunked(c call, body string) call {
	c.header = append(c.header, "Transfer-Encoding: chunked")
	if c.timestamp == "" {
		c.timestamp = strconv.FormatInt(start.Unix(), 10)
	}
	if c.signature == "" {
		c.signature = agentrelay.Sign(secret, c.method, c.target, c.timestamp, []byte(body))
	}
	c.length = -1
	c.body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	return c
}
