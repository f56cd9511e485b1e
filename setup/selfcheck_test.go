package setup_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/setup"
)

func TestSelfcheck(t *testing.T) {
	i := &installation{}
	i.start(t)
	for range 2 {
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), nil)
		expectEmptyInboxes(t, i)
	}
	entries, err := os.ReadDir(filepath.Join(i.dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "relay.") {
			t.Errorf("%s is left in the data directory", e.Name())
		}
	}
}

// What an earlier check left behind does not confuse a later one, which takes
// it away.
func TestSelfcheckClearsLeftovers(t *testing.T) {
	i := &installation{}
	i.start(t)
	i.clock.ahead.Store(int64(-2 * time.Minute))
	a, b := i.client(t, "selfcheck-a"), i.client(t, "selfcheck-b")
	for _, c := range []*client.Client{a, b} {
		if err := c.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		sent, err := a.Send(t.Context(), client.Outgoing{To: "selfcheck-b"})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if _, err := b.Ack(t.Context(), sent.ID, client.AckOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	i.clock.ahead.Store(0)
	expectFailures(t, setup.Selfcheck(t.Context(), i.options()), nil)
	// The second one takes the receipts of what the first one took.
	expectFailures(t, setup.Selfcheck(t.Context(), i.options()), nil)
	if page, err := b.Poll(t.Context(), client.PollOptions{}); err != nil || len(page.Messages) != 0 {
		t.Errorf("%d messages are left, %v", len(page.Messages), err)
	}
}

func TestSelfcheckAtOnce(t *testing.T) {
	i := &installation{}
	i.start(t)
	reports := make([]setup.Report, 3)
	var wait sync.WaitGroup
	for n := range reports {
		wait.Go(func() { reports[n] = setup.Selfcheck(t.Context(), i.options()) })
	}
	wait.Wait()
	for _, r := range reports {
		expectFailures(t, r, nil)
	}
}

func TestSelfcheckConfig(t *testing.T) {
	o := (&installation{}).options()
	o.ConfigErr = errors.New("line one\nline two")
	r := setup.Selfcheck(t.Context(), o)
	want := map[string]string{"config": "line one; line two"}
	for _, name := range checkNames[1:] {
		want[name] = "not checked; mend the config first"
	}
	expectFailures(t, r, want)
}

func TestSelfcheckFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no mode bits")
	}
	dir := func(mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "it's")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := filepath.Join(dir(0o700), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	i := &installation{}
	i.start(t)
	for name, test := range map[string]struct {
		config, data string
		want         map[string]string
	}{
		"memory":              {config: dir(0o700)},
		"readable config dir": {config: dir(0o755)},
		"sticky config dir":   {config: dir(0o777 | os.ModeSticky)},
		"writable config dir": {config: dir(0o775), want: map[string]string{"config-directory": `(mode 0775) and replace the config; run: chmod go-w '`}},
		"no config dir":       {config: file + "/x", want: map[string]string{"config-directory": "not a directory"}},
		"open data dir":       {config: dir(0o700), data: dir(0o750), want: map[string]string{"data-directory": `(mode 0750); run: chmod 700 '`}},
		"no data dir": {config: dir(0o700), data: dir(0o700) + "/none", want: map[string]string{
			"data-directory": "does not exist; start the broker, which makes it", "file-system": "cannot tell",
		}},
		"a file as data dir": {config: dir(0o700), data: file, want: map[string]string{"data-directory": "is no directory"}},
		"below a file":       {config: dir(0o700), data: file + "/x", want: map[string]string{"data-directory": "not a directory", "file-system": "cannot tell"}},
		// Nobody, root neither, makes files in there.
		"data dir without files": {config: dir(0o700), data: "/proc/self", want: map[string]string{"data-directory": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.data == "/proc/self" && runtime.GOOS != "linux" {
				t.Skip("there is no /proc")
			}
			o := i.options()
			o.ConfigPath, o.DataDir = filepath.Join(test.config, "config.yaml"), test.data
			expectFailures(t, setup.Selfcheck(t.Context(), o), test.want)
		})
	}
}

func unchecked(port string) map[string]string {
	want := map[string]string{"port": port}
	for _, name := range []string{"version", "clock", "round-trip"} {
		want[name] = "not checked; mend the port first"
	}
	return want
}

func TestSelfcheckPort(t *testing.T) {
	i := &installation{}
	i.start(t)
	t.Run("nobody", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := i.options()
		o.URL = "http://" + listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		expectFailures(t, setup.Selfcheck(t.Context(), o), unchecked("no broker answers at "+o.URL+"; start the broker: relay serve"))
	})
	t.Run("no URL", func(t *testing.T) {
		o := i.options()
		o.URL = "http://127.0.0.1:1/path?x"
		expectFailures(t, setup.Selfcheck(t.Context(), o), unchecked("must end after the port"))
	})
	for name, handler := range map[string]http.HandlerFunc{
		"a web server": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"not found":    http.NotFound,
		"another protocol": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"protocol":"9.9","version":"v1.2.3"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			o := i.options()
			o.URL = server.URL
			expectFailures(t, setup.Selfcheck(t.Context(), o),
				unchecked("something else answers at "+server.URL+"; stop that program, or set another listen"))
		})
	}
	t.Run("silence", func(t *testing.T) {
		release := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		defer server.Close()
		defer close(release)
		o := i.options()
		o.URL, o.Timeout = server.URL, 50*time.Millisecond
		expectFailures(t, setup.Selfcheck(t.Context(), o), unchecked("did not answer within"))
	})
}

func TestSelfcheckVersion(t *testing.T) {
	i := &installation{}
	i.start(t)
	o := i.options()
	o.Version = "v2"
	expectFailures(t, setup.Selfcheck(t.Context(), o), map[string]string{"version": "the broker is v1.2.3, this program v2; restart the broker"})
}

func TestSelfcheckClock(t *testing.T) {
	for date, want := range map[string]map[string]string{
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  {"clock": "ahead; set both clocks"},
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): {"clock": "behind; set both clocks"},
		"yesterday": {"clock": "shows no clock"},
	} {
		i := &installation{between: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", date)
				next.ServeHTTP(w, r)
			})
		}}
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), want)
	}
}

func TestSelfcheckRoundTrip(t *testing.T) {
	t.Run("another secret", func(t *testing.T) {
		i := &installation{}
		i.start(t)
		o := i.options()
		o.Secret = strings.Repeat("x", 32)
		for range 5 {
			expectFailures(t, setup.Selfcheck(t.Context(), o), map[string]string{"round-trip": "this config's secret is not the running broker's"})
		}
		expectFailures(t, setup.Selfcheck(t.Context(), o), map[string]string{"round-trip": "earlier bad signatures locked the agent out"})
	})
	t.Run("not allowed", func(t *testing.T) {
		i := &installation{acl: map[string][]string{"selfcheck-a": {}}}
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), map[string]string{"round-trip": "let selfcheck-a send to selfcheck-b"})
	})
	t.Run("keys are required", func(t *testing.T) {
		i := &installation{keysOnly: true}
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), map[string]string{"round-trip": "the running broker has another config"})
		o := i.options()
		o.RequireAgentKeys = true
		expectFailures(t, setup.Selfcheck(t.Context(), o), nil)
	})
	t.Run("storage full", func(t *testing.T) {
		i := answering(http.MethodPost, "/messages", http.StatusInsufficientStorage, `{"error":{"code":"storage_full","message":"full"}}`)
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), map[string]string{"round-trip": "send a message: full; free space"})
	})
	t.Run("never received", func(t *testing.T) {
		i := answering(http.MethodGet, "/messages", http.StatusOK, `{"messages":[],"cursor":null}`)
		i.start(t)
		o := i.options()
		o.Timeout = time.Second
		expectFailures(t, setup.Selfcheck(t.Context(), o), map[string]string{"round-trip": "receive the message: it did not come within 1s"})
		// What was sent was acknowledged all the same.
		leased, err := i.client(t, "selfcheck-b").Pull(t.Context(), client.PullOptions{})
		if err != nil || len(leased) != 0 {
			t.Errorf("%d messages are left, %v", len(leased), err)
		}
	})
	t.Run("no receipt", func(t *testing.T) {
		i := answering(http.MethodPost, "/v1/pull", http.StatusOK, `{"messages":[],"count":0}`)
		i.start(t)
		o := i.options()
		o.Timeout = time.Second
		expectFailures(t, setup.Selfcheck(t.Context(), o), map[string]string{"round-trip": "get the receipt: it did not come within 1s"})
	})
	t.Run("cannot settle", func(t *testing.T) {
		i := answering(http.MethodPost, "/v1/ack", http.StatusServiceUnavailable, `{"error":{"code":"busy","message":"later"}}`)
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), map[string]string{"round-trip": "get the receipt: later; see the broker's log"})
	})
	t.Run("cannot acknowledge", func(t *testing.T) {
		i := &installation{between: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/ack") && strings.HasPrefix(r.URL.Path, "/messages/") {
					http.Error(w, `{"error":{"code":"busy","message":"later"}}`, http.StatusServiceUnavailable)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
		i.start(t)
		expectFailures(t, setup.Selfcheck(t.Context(), i.options()), map[string]string{"round-trip": "receive the message: later"})
	})
}

// answering is an installation where something else that knows the secret
// answers one call.
func answering(method, path string, status int, body string) *installation {
	return &installation{between: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == method && r.URL.Path == path {
				w.Header().Set(agentrelay.HeaderSignature, agentrelay.SignAnswer(secret, r.Header.Get(agentrelay.HeaderSignature), status, []byte(body)))
				w.WriteHeader(status)
				fmt.Fprint(w, body)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}
}

func TestSelfcheckProxy(t *testing.T) {
	i := &installation{}
	i.start(t)
	for _, test := range []struct {
		env  []string
		want string
	}{
		{nil, ""},
		{[]string{"HTTPS_PROXY", "x", "NO_PROXY", "y"}, ""},
		{[]string{"HTTP_PROXY", "http://p"}, "HTTP_PROXY is set, so some clients would ask the proxy for 127.0.0.1; run: export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1"},
		{[]string{"http_proxy", "http://p", "no_proxy", "a.b, c"}, "run: export NO_PROXY='a.b, c,127.0.0.1'"},
		{[]string{"ALL_PROXY", "http://p"}, "ALL_PROXY is set"},
		{[]string{"all_proxy", "http://p", "NO_PROXY", "10.0.0.0/8,localhost"}, "all_proxy is set"},
		{[]string{"http_proxy", "http://p", "NO_PROXY", " localhost , 127.0.0.1 "}, ""},
		{[]string{"http_proxy", "http://p", "NO_PROXY", "127.0.0.0/8"}, ""},
		{[]string{"http_proxy", "http://p", "NO_PROXY", "*"}, ""},
		{[]string{"http_proxy", "http://p", "NO_PROXY", "0.1,.1,,"}, "http_proxy is set"},
	} {
		o := i.options()
		o.Env = variables(test.env...)
		want := map[string]string{}
		if test.want != "" {
			want["proxy"] = test.want
		}
		expectFailures(t, setup.Selfcheck(t.Context(), o), want)
	}
}

func TestReportText(t *testing.T) {
	r := setup.Report{Checks: []setup.Check{
		{Name: "config", OK: true, Detail: "/x"},
		{Name: "port", Detail: "closed", Remedy: "open it"},
	}}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := "ok    config            /x\nFAIL  port              closed; open it\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
