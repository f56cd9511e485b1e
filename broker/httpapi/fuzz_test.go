package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// FuzzRequest sends any bytes that net/http takes for a request. A signature
// of SIGN is replaced by the right one, so that handlers are reached.
func FuzzRequest(f *testing.F) {
	r := openRelay(f, setup{})
	r.broker.Drain() // nobody waits
	for _, name := range []string{"ann", "ben"} {
		r.serveDirectly(call{agent: name, method: http.MethodPost, target: "/register"}).want(http.StatusOK, nil)
	}
	for _, c := range everyRoute {
		c.agent, c.host, c.signature = "ann", "localhost", "SIGN"
		f.Add(r.render(c))
	}
	for _, body := range badBodies[:18] {
		f.Add(r.render(call{agent: "ann", host: "localhost", signature: "SIGN", method: http.MethodPost, target: "/messages", body: body}))
	}
	f.Add(r.render(chunked(call{agent: "ann", host: "localhost", signature: "SIGN", method: http.MethodPost, target: "/v1/pull"}, `{}`)))
	f.Add([]byte("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	f.Add([]byte("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n"))
	f.Add([]byte("GET // HTTP/1.0\r\n\r\n"))
	seeds, err := filepath.Glob("testdata/requests/*")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("the seeds in testdata are missing: %v", err)
	}
	for _, name := range seeds {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		sign(q)
		q.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, q)
		wantProtocol(t, w, q)
	})
}

func sign(q *http.Request) {
	if q.Header.Get(agentrelay.HeaderSignature) != "SIGN" {
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	q.Header.Set(agentrelay.HeaderSignature, agentrelay.Sign(secret, q.Method, q.RequestURI, q.Header.Get(agentrelay.HeaderTimestamp), body))
}

// wantProtocol checks that an answer is one of the protocol.
func wantProtocol(t *testing.T, w *httptest.ResponseRecorder, q *http.Request) {
	t.Helper()
	if q.URL.Path == "/metrics" && w.Code == http.StatusOK {
		if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("Content-Type of metrics is %q", got)
		}
		return
	}
	if got := w.Header().Get("Content-Type"); got != "application/json; charset=utf-8" {
		t.Errorf("Content-Type is %q", got)
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("%d is answered with no JSON: %q", w.Code, w.Body.Bytes())
	}
	if w.Code == http.StatusOK || w.Code == http.StatusCreated {
		return
	}
	var wire struct{ Error failure }
	if err := json.Unmarshal(w.Body.Bytes(), &wire); err != nil || wire.Error.Message == "" {
		t.Errorf("%d is answered with %q", w.Code, w.Body.Bytes())
	}
	code := agentrelay.Code(wire.Error.Code)
	if !slices.Contains(agentrelay.Codes(), code) || w.Code != statuses[code] {
		t.Errorf("the answer is %d with code %q", w.Code, code)
	}
	if w.Code >= 500 {
		t.Errorf("%s %s is answered with %d %q", q.Method, q.RequestURI, w.Code, w.Body.Bytes())
	}
	if w.Code == http.StatusConflict && !strings.HasPrefix(q.URL.Path, "/v1/") {
		t.Errorf("%s is answered with 409, which old clients read as success", q.URL.Path)
	}
}
