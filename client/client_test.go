package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "0123456789abcdef0123456789abcdef"

// received is a request as it arrived.
type received struct {
	method, target string
	header         http.Header
	body           []byte
}

// peer answers as a broker does, as far as a test tells it, and refuses what
// is not signed by the rules.
type peer struct {
	*httptest.Server

	mu       sync.Mutex
	requests []received
}

func newPeer(t *testing.T, answer http.HandlerFunc) *peer {
	t.Helper()
	p := &peer{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the body: %v", err)
		}
		p.mu.Lock()
		p.requests = append(p.requests, received{r.Method, r.RequestURI, r.Header.Clone(), body})
		p.mu.Unlock()
		h := r.Header
		signed := agentrelay.Verify(testSecret, r.Method, r.RequestURI, h.Get(agentrelay.HeaderTimestamp), body, h.Get(agentrelay.HeaderSignature))
		if r.RequestURI != "/" && !signed {
			t.Errorf("%s %s is not signed as the protocol says", r.Method, r.RequestURI)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		said := httptest.NewRecorder()
		answer(said, r)
		maps.Copy(w.Header(), said.Header())
		if w.Header().Get(agentrelay.HeaderSignature) == "" {
			w.Header().Set(agentrelay.HeaderSignature,
				agentrelay.SignAnswer(testSecret, h.Get(agentrelay.HeaderSignature), said.Code, said.Body.Bytes()))
		}
		w.WriteHeader(said.Code)
		_, _ = w.Write(said.Body.Bytes())
	}))
	t.Cleanup(p.Close)
	return p
}

// last is the latest request, and forgets it.
func (p *peer) last(t *testing.T) received {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		t.Fatal("no request arrived")
	}
	r := p.requests[len(p.requests)-1]
	p.requests = nil
	return r
}

// says answers every request alike.
func says(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	if o.Agent == "" {
		o.Agent = "alpha"
	}
	if o.Secret == "" {
		o.Secret = testSecret
	}
	if o.Pauses == nil {
		o.Pauses = NoRetries // what fails here fails at once
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNewDefaults(t *testing.T) {
	c := newClient(t, Options{})
	if c.URL() != "http://127.0.0.1:19121" || c.Agent() != "alpha" {
		t.Errorf("URL %s, agent %s", c.URL(), c.Agent())
	}
}

func TestNewURL(t *testing.T) {
	for given, want := range map[string]string{
		"http://127.0.0.1:19121":  "http://127.0.0.1:19121",
		"http://127.0.0.1:19121/": "http://127.0.0.1:19121",
		"https://relay.example":   "https://relay.example",
		"http://[::1]:80":         "http://[::1]:80",
		"HTTP://localhost:1":      "http://localhost:1",
	} {
		c, err := New(Options{URL: given, Agent: "alpha", Secret: "s"})
		if err != nil || c.URL() != want {
			t.Errorf("%s: %v", given, err)
		}
	}
	for _, given := range []string{
		"127.0.0.1:19121", "localhost", "ftp://host", "unix:///run/x", "http://", "http://:19121", "://", "http://a b", "http://host:x",
		"http://host//relay", "http://host/re%2Flay", "http://host?x=1", "http://host?", "http://host#f", "http://alpha:s3cret@host", "http://alpha:s3cret@host:x",
	} {
		c, err := New(Options{URL: given, Agent: "alpha", Secret: "s"})
		if err == nil {
			t.Errorf("%s is taken as %s", given, c.URL())
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error repeats the password: %v", given, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for says, o := range map[string]Options{
		"name is missing":   {Secret: "s"},
		"no agent name":     {Agent: "a b", Secret: "s"},
		"secret is missing": {Agent: "alpha"},
		"time limit":        {Agent: "alpha", Secret: "s", Timeout: -1},
		"answer limit":      {Agent: "alpha", Secret: "s", MaxAnswerBytes: -1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

func TestLoopbackUsesNoProxy(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy.example:3128"}
	through := exceptLoopback(func(*http.Request) (*url.URL, error) { return proxy, nil })
	for host, loopback := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "relay.localhost": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true,
		"10.0.0.1": false, "128.0.0.1": false, "::2": false, "relay.example": false, "localhost.example": false, "notlocalhost": false, "127.0.0.1.example": false,
	} {
		u := &url.URL{Scheme: "http", Host: host + ":19121"}
		if strings.Contains(host, ":") {
			u.Host = "[" + host + "]:19121"
		}
		got, err := through(&http.Request{URL: u})
		if err != nil || (got == nil) != loopback {
			t.Errorf("%s goes through %v, %v", host, got, err)
		}
	}
}

// The environment's proxies stand for hosts elsewhere: net/http reads them
// once a process, so what is checked is that the transport asks for them.
func TestTransportKnowsProxies(t *testing.T) {
	transport, ok := newClient(t, Options{}).http.Transport.(*http.Transport)
	if !ok || transport.Proxy == nil || !transport.DisableCompression {
		t.Errorf("transport %+v", transport)
	}
}

// What the client puts on the wire is held against the rule of the vectors by
// newPeer; here against the vectors themselves.
func TestRequestsFollowTheVectors(t *testing.T) {
	data, err := os.ReadFile("../testdata/http-signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Secret, Method, Target, Timestamp, Body, Signature string

			BodyBase64 []byte `json:"body_base64"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var arrived received
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived = received{r.Method, r.RequestURI, r.Header, body}
	}))
	defer server.Close()
	for _, v := range file.Vectors {
		body := v.BodyBase64
		if body == nil && v.Body != "" {
			body = []byte(v.Body)
		}
		c := newClient(t, Options{URL: server.URL, Secret: v.Secret})
		if _, err := c.roundTrip(t.Context(), call{method: v.Method, target: v.Target, body: body}); err != nil {
			t.Fatal(err)
		}
		if arrived.method != v.Method || arrived.target != v.Target || string(arrived.body) != string(body) {
			t.Errorf("%s %s %q arrives as %s %s %q", v.Method, v.Target, body, arrived.method, arrived.target, arrived.body)
		}
		stamp, signature := arrived.header.Get(agentrelay.HeaderTimestamp), arrived.header.Get(agentrelay.HeaderSignature)
		if !agentrelay.Verify(v.Secret, v.Method, v.Target, stamp, body, signature) {
			t.Errorf("%s %s: the signature does not hold", v.Method, v.Target)
		}
		// The same request at the vector's time has the vector's signature.
		if got := agentrelay.Sign(v.Secret, arrived.method, arrived.target, v.Timestamp, arrived.body); got != v.Signature {
			t.Errorf("%s %s: signature %s, want %s", v.Method, v.Target, got, v.Signature)
		}
	}
}

func TestTimestamps(t *testing.T) {
	now := time.Unix(1755250000, 7_654_321)
	c := newClient(t, Options{Now: func() time.Time { return now }})
	seen := map[string]bool{}
	for range 100 {
		text := c.timestamp()
		stamp, err := agentrelay.ParseTimestamp(text)
		if err != nil || !stamp.Fractional() || len(text) != len("1755250000.007654321") {
			t.Fatalf("timestamp %q: %v", text, err)
		}
		if off := stamp.Time().Sub(now).Abs(); off > time.Millisecond {
			t.Fatalf("timestamp %q is %v off", text, off)
		}
		seen[text] = true
	}
	if len(seen) < 95 {
		t.Errorf("100 timestamps of one instant, only %d of them different", len(seen))
	}
}

func TestSignedHeaders(t *testing.T) {
	p := newPeer(t, says(200, `{"peers":[]}`))
	c := newClient(t, Options{URL: p.URL, UserAgent: "own/1"})
	if _, err := c.Peers(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := p.last(t).header
	if h.Get(agentrelay.HeaderAgent) != "alpha" || h.Get("User-Agent") != "own/1" || h.Get("Accept-Encoding") != "" {
		t.Errorf("headers %v", h)
	}
	for name, values := range h {
		if strings.Contains(strings.Join(values, " "), testSecret) {
			t.Errorf("the secret is in header %s", name)
		}
	}
}

func TestErrorsAreOfTheirKind(t *testing.T) {
	cause := io.ErrUnexpectedEOF
	err := error(&fault{text: "text", kind: ErrUnreachable, cause: cause})
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, cause) || errors.Is(err, ErrNotRelay) || err.Error() != "text: unexpected EOF" {
		t.Errorf("%v", err)
	}
}

// signed signs an answer as the broker does.
func signed(q *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header.Set(agentrelay.HeaderSignature,
		agentrelay.SignAnswer(testSecret, q.Header.Get(agentrelay.HeaderSignature), resp.StatusCode, body))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
