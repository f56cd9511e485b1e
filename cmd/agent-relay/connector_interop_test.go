package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/client"
)

// A connector in Python, which frames by hand, works with the whole broker.
func TestInteropConnectorInPython(t *testing.T) {
	program := exec.Command(findPeer(t, pythonWorks), filepath.Join("testdata", "connectors", "chat.py"), connectorSecret)
	out := startPrinting(t, program)
	url := out.line()
	r := startRelay(t, relayOptions{lines: []string{chatLines(t, url)}})
	ben := r.client("ben")
	for i, want := range []string{"eins", "zwei ✓", "drei 😊"} {
		var event struct {
			Text   string
			Source map[string]any
		}
		m := arrivals(t, ben, 3)[i]
		if err := json.Unmarshal(m.Body, &event); err != nil || event.Text != want || len(event.Source) != 2 || m.From != "chat" {
			t.Errorf("ben gets %s from %s (%v), want %s", m.Body, m.From, err, want)
		}
	}
	for _, want := range []string{
		`{"type":"hello","platform":"chat","botId":"1"}`, `{"type":"inbound_ack","bufferId":"b1"}`, `{"type":"inbound_ack","bufferId":"b2"}`,
		`{"type":"inbound_ack","bufferId":"b3"}`,
	} {
		if got := out.line(); got != want {
			t.Errorf("the relay says %s, want %s", got, want)
		}
	}
	// A reply goes back to the chat, in parts that fit.
	sent, err := ben.Send(t.Context(), client.Outgoing{
		To: "chat", ReplyTo: arrivals(t, ben, 3)[0].ID, Body: []byte(`{"text":"Das hier ist länger als vierzig Zeichen, ✓ und 😊."}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := arrivals(t, ben, 4)[3]; m.ReplyTo != sent.ID || string(m.Body) != `{"status":"ok","message_ids":["1040","1008"]}` {
		t.Errorf("ben is told %s", m.Body)
	}
	for _, want := range []string{"Das hier ist länger als vierzig Zeichen,", "✓ und 😊."} {
		if got := out.line(); !strings.Contains(got, `"chat_id":"c","content":"`+want+`"`) {
			t.Errorf("the relay says %s, want %s", got, want)
		}
	}
	r.signal(os.Interrupt)
	if got := out.line(); got != `{"type":"going_idle"}` {
		t.Errorf("the relay says %s", got)
	}
	if status, _ := r.wait(); status != 0 {
		t.Errorf("the broker ends with %d", status)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the connector: %v", err)
	}
}

// printing is a program that is read line by line.
type printing struct {
	t     *testing.T
	lines *bufio.Scanner
}

func startPrinting(t *testing.T, program *exec.Cmd) *printing {
	t.Helper()
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	// Who never prints is ended, so that nobody waits for ever.
	limit := time.AfterFunc(time.Minute, func() { _ = program.Process.Kill() })
	t.Cleanup(func() {
		limit.Stop()
		_ = program.Process.Kill() // it may have ended
		_ = program.Wait()
	})
	return &printing{t, bufio.NewScanner(out)}
}

func (p *printing) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the program has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// The connector that comes with the program sends back what it gets, through
// two brokers of which the first is killed.
func TestConnectorEcho(t *testing.T) {
	program := exec.Command("agent-relay", "connector", "echo", "--listen", "127.0.0.1:0", "--platform", "chat", "--secret-file", secretFile(t, connectorSecret))
	noted, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := startPrinting(t, program)
	where := bufio.NewScanner(noted)
	if !where.Scan() {
		t.Fatal("the connector did not start")
	}
	url := strings.TrimPrefix(where.Text(), "listening at ")
	config := testConfig(t, chatLines(t, url))
	p := startBroker(t, config)
	ann := p.client("ann")
	register(t, ann)
	say(t, ann, "m1", `{"chat_id":"c","text":"hello"}`)
	if m := arrivals(t, ann, 1)[0]; string(m.Body) != `{"status":"ok","message_ids":["1"]}` {
		t.Errorf("ann is told %s", m.Body)
	}
	if m := arrivals(t, p.client("ben"), 1)[0]; string(m.Body) != `{"text":"hello","message_id":"echo-1","source":{"platform":"chat","chat_id":"c"}}` {
		t.Errorf("ben gets %s", m.Body)
	}
	for _, want := range []string{"<- {\"type\":\"hello\"", "-> {\"type\":\"descriptor\"", "<- {\"type\":\"outbound\"", "-> {\"type\":\"outbound_result\"", "-> {\"type\":\"inbound\"", "<- {\"type\":\"inbound_ack\""} {
		if got := out.line(); !strings.HasPrefix(got, want) {
			t.Errorf("it prints %s, want %s", got, want)
		}
	}
	p.kill()
	p = startBroker(t, config)
	say(t, p.client("ann"), "m2", `{"op":"get_chat_info","chat_id":"c"}`)
	if m := arrivals(t, p.client("ann"), 2)[1]; string(m.Body) != `{"status":"ok","chat_info":{"name":"echo","type":"dm"}}` {
		t.Errorf("ann is told %s", m.Body)
	}

	// Another secret is not let in.
	stranger := startRelay(t, relayOptions{lines: []string{chatLinesWith(url, secretFile(t, "another secret"))}})
	stranger.waitLog(`4401`)
	if peers, err := stranger.client("ann").Peers(t.Context()); err != nil || !offline(peers, "chat") {
		t.Errorf("the peers are %+v, %v", peers, err)
	}
}

func offline(peers []agentrelay.Peer, name string) bool {
	for _, p := range peers {
		if p.Agent == name {
			return !p.Online
		}
	}
	return false
}

// Nobody is a connector by the shared secret, and what one posts is stored once.
func TestConnectorOverHTTP(t *testing.T) {
	r := startRelay(t, relayOptions{lines: []string{chatLines(t, "http://127.0.0.1:1", "    delivery_keys_file: '"+secretFile(t, "key one", "key two")+"'")}})
	if err := r.client("chat").Register(t.Context()); err == nil {
		t.Error("an agent is taken for the connector")
	}
	post := func(key string) int {
		t.Helper()
		const body = `{"type":"message","event":{"text":"hi","source":{"platform":"chat","chat_id":"c"}}}`
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/connectors/chat/inbound", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		at := strconv.FormatInt(time.Now().Unix(), 10)
		q.Header.Set(connector.HeaderDeliveryTimestamp, at)
		q.Header.Set(connector.HeaderDeliverySignature, connector.SignDelivery(key, at, []byte(body)))
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if status := post("key two"); status != http.StatusCreated {
		t.Errorf("a delivery answers %d", status)
	}
	if status := post("key three"); status != http.StatusUnauthorized {
		t.Errorf("a delivery with another key answers %d", status)
	}
	if m := arrivals(t, r.client("ben"), 1)[0]; m.From != "chat" {
		t.Errorf("ben gets %+v", m)
	}
}

// Files of secrets are refused that others can read, or that hold none.
func TestConnectorSecrets(t *testing.T) {
	for name, test := range map[string]struct {
		path func() string
		want string
	}{
		"missing":     {func() string { return filepath.Join(t.TempDir(), "none") }, "no such file"},
		"empty":       {func() string { return secretFile(t, " ", "") }, "holds no secret"},
		"a directory": {func() string { return t.TempDir() }, "is not a regular file"},
		"open": {func() string {
			path := secretFile(t, "x")
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}, "lets others read"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "open" {
				needModes(t)
			}
			_, err := readSecrets(test.path())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if got, err := readSecrets(secretFile(t, "one ", "", "two")); err != nil || len(got) != 2 || got[0] != "one" || got[1] != "two" {
		t.Errorf("the secrets are %q, %v", got, err)
	}
}
