package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// oldClient is a running client of testdata/clients.
type oldClient struct {
	t     *testing.T
	agent string
	in    io.Writer
	out   *bufio.Reader
	// start starts another one of its kind.
	start func(t *testing.T, url, agent, secret string) *oldClient
	// deaf clients take every 409 for success.
	deaf bool
}

// jsonObject is a JSON object.
type jsonObject map[string]any

func (f jsonObject) text(name string) string {
	s, _ := f[name].(string)
	return s
}

func (f jsonObject) object(name string) jsonObject {
	o, _ := f[name].(map[string]any)
	return o
}

func (f jsonObject) list(name string) []jsonObject {
	entries, _ := f[name].([]any)
	list := make([]jsonObject, len(entries))
	for i, entry := range entries {
		list[i], _ = entry.(map[string]any)
	}
	return list
}

func messageIDs(list []jsonObject) []string {
	var found []string
	for _, m := range list {
		found = append(found, m.text("id"))
	}
	return found
}

// oldAnswer is what a client prints for a call.
type oldAnswer struct {
	OK     bool
	Status int
	Error  jsonObject
	Result jsonObject
}

func readAnswer(t *testing.T, line []byte) (a oldAnswer) {
	t.Helper()
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("the client printed %q: %v", line, err)
	}
	return a
}

func jsonValue(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func startPython(t *testing.T, url, agent string) *oldClient {
	t.Helper()
	return newPython(t, url, agent, interopSecret)
}

func newPython(t *testing.T, url, agent, secret string) *oldClient {
	t.Helper()
	c := startOldClient(t, clientEnv(url, agent, secret), findPeer(t, pythonWorks), clientPath(t, "python/relay_client.py"))
	c.agent, c.start, c.deaf = agent, newPython, true
	return c
}

func startNode(t *testing.T, url, agent string) *oldClient {
	t.Helper()
	return newNode(t, url, agent, interopSecret)
}

func newNode(t *testing.T, url, agent, secret string) *oldClient {
	t.Helper()
	c := startOldClient(t, clientEnv(url, agent, secret), findPeer(t, nodeWorks), clientPath(t, "node/relay-client.mjs"), "stdin")
	c.agent, c.start = agent, newNode
	return c
}

// startOldClient runs a client that reads calls from stdin, until the test ends.
func startOldClient(t *testing.T, env []string, name string, args ...string) *oldClient {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = env, &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, stderr.String())
		}
	})
	return &oldClient{t: t, in: in, out: bufio.NewReader(out)}
}

// clientEnv is a client's whole environment: no proxy, and no long pauses.
func clientEnv(url, agent, secret string) []string {
	env := []string{
		"RELAY_URL=" + url, "RELAY_AGENT=" + agent, "RELAY_SECRET=" + secret,
		"RELAY_RETRY_DELAYS=0.01,0.01,0.01",
	}
	for _, name := range []string{"PATH", "HOME", "SYSTEMROOT"} {
		env = append(env, name+"="+os.Getenv(name))
	}
	return env
}

// The interpreters of the clients, if they work here.
var (
	pythonWorks = sync.OnceValues(func() (string, error) { return interpreter("python3") })
	nodeWorks   = sync.OnceValues(func() (string, error) { return interpreter("node") })
)

func interpreter(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err == nil {
		err = exec.Command(path, "--version").Run()
	}
	return path, err
}

// findPeer returns the path of an interpreter.
func findPeer(t *testing.T, works func() (string, error)) string {
	t.Helper()
	path, err := works()
	if err != nil {
		cannotRun(t, "a client cannot run here: %v", err)
	}
	return path
}

// cannotRun skips a test for what the machine lacks, unless it must have it.
func cannotRun(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("AGENT_RELAY_REQUIRE_PEERS") == "1" {
		t.Fatalf("AGENT_RELAY_REQUIRE_PEERS is set, but "+format, args...)
	}
	t.Skipf(format, args...)
}

func clientPath(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "testdata", "clients", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// call makes one call and waits for what the client says of it.
func (c *oldClient) call(name string, arguments jsonObject) oldAnswer {
	c.t.Helper()
	line := jsonObject{"call": name}
	for k, v := range arguments {
		line[k] = v
	}
	text, err := json.Marshal(line)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, '\n')); err != nil {
		c.t.Fatalf("%s %s: %v", c.agent, name, err)
	}
	printed, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("%s %s: %v", c.agent, name, err)
	}
	return readAnswer(c.t, printed)
}

// ok makes a call that must succeed.
func (c *oldClient) ok(name string, arguments jsonObject) jsonObject {
	c.t.Helper()
	got := c.call(name, arguments)
	if !got.OK {
		c.t.Fatalf("%s: %s %v is refused: %d %v", c.agent, name, arguments, got.Status, got.Error)
	}
	return got.Result
}

// refused makes a call that must fail, and returns the error's members.
func (c *oldClient) refused(name string, arguments jsonObject, status int, code agentrelay.Code) jsonObject {
	c.t.Helper()
	got := c.call(name, arguments)
	if got.OK || got.Status != status || got.Error["code"] != string(code) || got.Error.text("message") == "" {
		c.t.Errorf("%s: %s %v answers %+v, want %d %s", c.agent, name, arguments, got, status, code)
	}
	return got.Error
}

// conflict makes a call that must be answered 409.
func (c *oldClient) conflict(name string, arguments jsonObject, code agentrelay.Code) {
	c.t.Helper()
	if !c.deaf {
		c.refused(name, arguments, http.StatusConflict, code)
		return
	}
	if got := c.ok(name, arguments); got["duplicate"] != true {
		c.t.Errorf("%s: %s %v answers %v, want what a 409 is taken for", c.agent, name, arguments, got)
	}
}

// gate stands between clients and a broker, and can lose an answer.
type gate struct {
	url    string
	close  func()
	client http.Client

	mu       sync.Mutex
	upstream *url.URL
	// replace, if set, is called once the next message has been accepted. Its
	// sender does not learn of that.
	replace func() (upstream string, err error)
}

func newGate(t *testing.T, upstream string) *gate {
	t.Helper()
	g := &gate{client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if err := g.lead(upstream); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body, err := g.pass(r)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	g.url, g.close = server.URL, server.Close
	t.Cleanup(server.Close)
	return g
}

func (g *gate) lead(upstream string) (err error) {
	g.upstream, err = url.Parse(upstream)
	return err
}

func (g *gate) loseNext(replace func() (upstream string, err error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replace = replace
}

// pass hands a request on as it is, and its answer, unless that is to be lost.
func (g *gate) pass(r *http.Request) (status int, body []byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	status = http.StatusServiceUnavailable
	to := &http.Request{
		Method: r.Method, Header: r.Header, Body: r.Body, ContentLength: r.ContentLength,
		URL: &url.URL{Scheme: "http", Host: g.upstream.Host, Opaque: r.RequestURI},
	}
	res, err := g.client.Do(to.WithContext(r.Context()))
	if err != nil {
		return status, nil, err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		return status, nil, err
	}
	if g.replace == nil || res.StatusCode != http.StatusCreated {
		return res.StatusCode, body, nil
	}
	next, err := g.replace()
	if g.replace = nil; err != nil {
		return status, nil, err
	}
	return status, nil, g.lead(next)
}
