package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// scriptSecret is that of the config that the command of this name writes.
const scriptSecret = "5f0c1d2e3b4a5968778695a4b3c2d1e0f5e4d3c2b1a09f8e7d6c5b4a39281706"

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"agent-relay": main, "sandboxed": sandboxed})
}

// leakChecked fails when goroutines are left after the tests passed.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	status := l.m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// TestScripts runs the program as its users do. Besides testscript's own, the
// scripts have these commands:
//
//	config [LINE...]      choose a free port and write the user's config, with
//	                      these lines added; sets PORT and URL
//	ready                 wait until the broker at URL is well
//	peer AGENT [offline]  wait until the broker at URL knows the agent, and
//	                      that it is offline
//	status N CMD ARG...   run a command that must exit with status N
//	capture VAR REGEXP    set VAR to what the group in REGEXP matches in stdout
//	stranger              serve something that is no broker; sets STRANGER
//	squatter              serve something that claims to be the broker, and says
//	                      yes to all; sets SQUATTER
//	silent                listen, and never answer; sets SILENT
//	refusing STATUS CODE  serve a broker that refuses all calls; sets REFUSING
//	appears FILE [TEXT]   wait until there is such a file, with whole lines that
//	                      hold the text
//	until REGEXP CMD ARG...
//	                      run a command until its stdout matches
//	listens SOCKET        wait until somebody answers at a Unix socket
//	stored AGENT ID       wait until the broker has a message of the agent's
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{"HOME", "AppData", "LocalAppData"} {
				e.Setenv(name, e.WorkDir)
			}
			e.Setenv("CONFIG", filepath.Join(e.WorkDir, ".config", "agent-relay", "config.yaml"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("SECRET", scriptSecret)
			// Else each command waits a second at its end under the race detector.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"config":   scriptConfig,
			"ready":    scriptReady,
			"peer":     scriptPeer,
			"status":   scriptStatus,
			"capture":  scriptCapture,
			"stranger": scriptStranger,
			"squatter": scriptSquatter,
			"silent":   scriptSilent,
			"refusing": scriptRefusing,
			"stored":   scriptStored,
			"appears":  scriptAppears,
			"listens":  scriptListens,
			"until":    scriptUntil,
		},
		RequireExplicitExec: true,
	})
}

func scriptConfig(ts *testscript.TestScript, neg bool, lines []string) {
	if neg {
		ts.Fatalf("usage: config [LINE...]")
	}
	address, err := freeAddress()
	ts.Check(err)
	_, port, err := net.SplitHostPort(address)
	ts.Check(err)
	ts.Setenv("PORT", port)
	ts.Setenv("URL", "http://"+address)
	ts.Check(writeConfig(ts.Getenv("CONFIG"), address, lines...))
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func writeConfig(path, address string, lines ...string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lines = append([]string{"listen: " + address, "secret: " + scriptSecret}, lines...)
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: ready")
	}
	ts.Check(waitFor(func() error { return healthy(ts.Getenv("URL")) }))
}

func healthy(url string) error {
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url + "/healthz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func scriptPeer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) == 2 && args[1] != "offline" || len(args) > 2 {
		ts.Fatalf("usage: peer AGENT [offline]")
	}
	c, err := client.New(client.Options{URL: ts.Getenv("URL"), Agent: "observer", Secret: scriptSecret, Pauses: client.NoRetries})
	ts.Check(err)
	defer c.Close()
	ts.Check(waitFor(func() error {
		peers, err := c.Peers(context.Background())
		if err != nil {
			return err
		}
		for _, p := range peers {
			if p.Agent == args[0] && (len(args) == 1 || !p.Online) {
				return nil
			}
		}
		return fmt.Errorf("no peer is %v; there are %v", args, peers)
	}))
}

// waitFor tries until it works, and gives up when a test would have to.
func waitFor(try func() error) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N CMD ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func scriptCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture VAR REGEXP")
	}
	match := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(match) != 2 {
		ts.Fatalf("stdout does not match %s", args[1])
	}
	ts.Setenv(args[0], match[1])
}

func scriptStranger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: stranger")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.Header.Get(agentrelay.HeaderSignature) != "" {
			ts.Logf("the stranger got %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "<html>hello</html>")
	}))
	ts.Defer(server.Close)
	ts.Setenv("STRANGER", server.URL)
}

func scriptSquatter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: squatter")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, `{"protocol":"1.0","broker":"agent-relay","capabilities":{"signedResponses":true,"singleUseTimestamps":true}}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"accepted":true,"id":"mine","ok":true,"peers":[],"messages":[],"cursor":null}`)
	}))
	ts.Defer(server.Close)
	ts.Setenv("SQUATTER", server.URL)
}

func scriptSilent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: silent")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("SILENT", "http://"+l.Addr().String())
}

func scriptRefusing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: refusing STATUS CODE")
	}
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, `{"protocol":"1.0","broker":"agent-relay","version":"0","capabilities":{}}`)
			return
		}
		body := fmt.Appendf(nil, `{"error":{"code":%q,"message":"refused by the test"}}`, args[1])
		w.Header().Set(agentrelay.HeaderSignature, agentrelay.SignAnswer(scriptSecret, r.Header.Get(agentrelay.HeaderSignature), status, body))
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	ts.Defer(server.Close)
	ts.Setenv("REFUSING", server.URL)
}

func scriptStored(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stored AGENT ID")
	}
	c, err := client.New(client.Options{URL: ts.Getenv("URL"), Agent: args[0], Secret: scriptSecret, Pauses: client.NoRetries})
	ts.Check(err)
	defer c.Close()
	ts.Check(waitFor(func() error {
		found, err := c.Status(context.Background(), args[1])
		if err == nil && found[0].Status == client.StatusNotFound {
			err = fmt.Errorf("%s is not there yet", args[1])
		}
		return err
	}))
}

func scriptAppears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: appears FILE [TEXT]")
	}
	want := append(args, "")[1]
	ts.Check(waitFor(func() error {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if text := string(data); err == nil && !(strings.HasSuffix(text, "\n") && strings.Contains(text, want)) {
			err = fmt.Errorf("it holds %q", text)
		}
		return err
	}))
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP CMD ARG...")
	}
	re := regexp.MustCompile("(?m)" + args[0])
	ts.Check(waitFor(func() error {
		err := ts.Exec(args[1], args[2:]...)
		if got := ts.ReadFile("stdout"); err == nil && !re.MatchString(got) {
			err = fmt.Errorf("it prints %s", got)
		}
		return err
	}))
}

func scriptListens(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listens SOCKET")
	}
	ts.Check(waitFor(func() error {
		conn, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		return conn.Close()
	}))
}
