package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

const processSecret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// brokerProcess is the real program, serving, as a process of its own.
type brokerProcess struct {
	t       testing.TB
	command *exec.Cmd
	url     string
	log     *logTail
}

// logTail keeps what a process logged, and finds the address it listens on.
type logTail struct {
	mu    sync.Mutex
	lines []string
	done  chan struct{}
}

func (l *logTail) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// testConfig writes a config into a directory of its own and returns its
// path. more is added to it.
func testConfig(t testing.TB, more string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\ndata_dir: %s\nsecret: %s\n%s", filepath.Join(dir, "data"), processSecret, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startBroker runs `agent-relay serve` and waits until it listens.
func startBroker(t testing.TB, config string) *brokerProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &brokerProcess{t: t, command: exec.Command(self, "serve", "--config", config), log: &logTail{done: make(chan struct{})}}
	p.command.Args[0] = "agent-relay" // what the test binary runs as under this name is main
	stderr, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	address := make(chan string, 1)
	go func() {
		defer close(p.log.done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.log.mu.Lock()
			p.log.lines = append(p.log.lines, lines.Text())
			p.log.mu.Unlock()
			var entry struct{ Msg, Addr string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
				address <- entry.Addr
			}
		}
	}()
	select {
	case at := <-address:
		p.url = "http://" + at
	case <-p.log.done:
		t.Fatalf("the broker did not start:\n%s", p.log.text())
	}
	return p
}

// kill ends the process as kill -9 does, if it still runs.
func (p *brokerProcess) kill() {
	if p.command.ProcessState != nil {
		return
	}
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.log.done
	_ = p.command.Wait() // "signal: killed"
}

func (p *brokerProcess) client(agent string) *client.Client {
	c, err := client.New(client.Options{URL: p.url, Agent: agent, Secret: processSecret, Pauses: client.NoRetries})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// TestKillDuringSends kills the broker again and again while agents send.
// What was accepted is delivered once; what was not is sent again under the
// same id until it is.
func TestKillDuringSends(t *testing.T) {
	const (
		rounds  = 6
		senders = 8
		each    = 150 // messages accepted in a round before the kill
	)
	config := testConfig(t, "")
	accepted := map[string]bool{}
	unsure := make([]string, senders) // the id that each sender does not know the fate of
	sequence := 0
	for round := range rounds {
		p := startBroker(t, config)
		if err := p.client("sink").Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var count atomic.Int64
		enough := make(chan struct{})
		var wait sync.WaitGroup
		for s := range senders {
			c := p.client(fmt.Sprint("sender-", s))
			wait.Go(func() {
				for {
					mu.Lock()
					id := unsure[s]
					if id == "" {
						sequence++
						id = fmt.Sprint("m", sequence)
						unsure[s] = id
					}
					mu.Unlock()
					if _, err := c.Send(t.Context(), client.Outgoing{ID: id, To: "sink", Body: client.TextBody(id)}); err != nil {
						if !errors.Is(err, client.ErrUnreachable) {
							t.Errorf("round %d: %v", round, err)
						}
						return
					}
					mu.Lock()
					accepted[id] = true
					unsure[s] = ""
					mu.Unlock()
					if count.Add(1) == each {
						close(enough)
					}
				}
			})
		}
		<-enough
		p.kill()
		wait.Wait()
	}
	p := startBroker(t, config)
	for s, id := range unsure {
		if id == "" {
			continue
		}
		if _, err := p.client(fmt.Sprint("sender-", s)).Send(t.Context(), client.Outgoing{ID: id, To: "sink", Body: client.TextBody(id)}); err != nil {
			t.Fatal(err)
		}
		accepted[id] = true
	}
	got := drainInbox(t, p.client("sink"))
	for id := range accepted {
		if got[id] != 1 {
			t.Errorf("%s was accepted and delivered %d times", id, got[id])
		}
	}
	if len(got) != len(accepted) {
		t.Errorf("%d messages were accepted, %d delivered", len(accepted), len(got))
	}
	t.Logf("%d messages over %d kills", len(accepted), rounds)
}

// drainInbox polls an inbox to its end and counts what came.
func drainInbox(t *testing.T, c *client.Client) map[string]int {
	t.Helper()
	got := map[string]int{}
	for since := ""; ; {
		page, err := c.Poll(t.Context(), client.PollOptions{Since: since, Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) == 0 {
			return got
		}
		for _, m := range page.Messages {
			got[m.ID]++
			if want := string(client.TextBody(m.ID)); string(m.Body) != want {
				t.Errorf("%s has the body %s", m.ID, m.Body)
			}
		}
		since = page.Cursor
	}
}

// TestKillKeepsEverything shows that registry, cursors, leases, receipts and
// the memory of ids survive a kill.
func TestKillKeepsEverything(t *testing.T) {
	ctx := t.Context()
	config := testConfig(t, "lease: 1h\n")
	p := startBroker(t, config)
	alpha, beta := p.client("alpha"), p.client("beta")
	for _, c := range []*client.Client{alpha, beta} {
		if err := c.Register(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"one", "two", "three"} {
		if _, err := alpha.Send(ctx, client.Outgoing{ID: id, To: "beta", Body: client.TextBody(id)}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := beta.Poll(ctx, client.PollOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := beta.Ack(ctx, "one", client.AckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leased, err := beta.Pull(ctx, client.PullOptions{Limit: 1})
	if err != nil || len(leased) != 1 || leased[0].ID != "two" {
		t.Fatal(leased, err)
	}
	p.kill()

	p = startBroker(t, config)
	alpha, beta = p.client("alpha"), p.client("beta")
	if peers, err := alpha.Peers(ctx); err != nil || len(peers) != 2 {
		t.Errorf("peers are %v, %v", peers, err)
	}
	if next, err := beta.Poll(ctx, client.PollOptions{Since: page.Cursor}); err != nil || next.Reset || len(next.Messages) != 1 || next.Messages[0].ID != "three" {
		t.Errorf("after the cursor come %+v, %v", next, err)
	}
	if sent, err := alpha.Send(ctx, client.Outgoing{ID: "one", To: "beta", Body: client.TextBody("one")}); err != nil || !sent.Duplicate {
		t.Errorf("sending again answers %+v, %v", sent, err)
	}
	if _, err := alpha.Send(ctx, client.Outgoing{ID: "one", To: "beta", Body: client.TextBody("other")}); !errors.Is(err, agentrelay.ErrIDConflict) {
		t.Errorf("another message of that id answers %v", err)
	}
	if again, err := beta.Ack(ctx, "one", client.AckOptions{}); err != nil || again != receipt {
		t.Errorf("acknowledging again answers %q, %v; the receipt was %q", again, err, receipt)
	}
	settled, err := beta.Settle(ctx, client.Settlement{ID: "two", LeaseID: leased[0].LeaseID, Outcome: agentrelay.OutcomeCompleted})
	if err != nil || settled.Status != agentrelay.StatusDone {
		t.Errorf("settling the lease answers %+v, %v", settled, err)
	}
	inbox, err := alpha.Poll(ctx, client.PollOptions{})
	if err != nil || len(inbox.Messages) != 1 || inbox.Messages[0].ID != receipt {
		t.Errorf("the sender has %+v, %v", inbox.Messages, err)
	}
}

// TestRetryAcrossRestart shows that a client that got no answer may send
// again: the id makes it one message.
func TestRetryAcrossRestart(t *testing.T) {
	config := testConfig(t, "")
	p := startBroker(t, config)
	if err := p.client("beta").Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The answer is lost on the way: the transport hides it.
	lost := &loseAnswers{}
	c, err := client.New(client.Options{URL: p.url, Agent: "alpha", Secret: processSecret, Transport: lost, Pauses: client.NoRetries})
	if err != nil {
		t.Fatal(err)
	}
	m := client.Outgoing{ID: "once", To: "beta", Body: client.TextBody("once")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Send(ctx, m); err == nil {
		t.Fatal("a lost answer counts as sent")
	}
	p.kill()
	p = startBroker(t, config)
	sent, err := p.client("alpha").Send(ctx, m)
	if err != nil || !sent.Duplicate {
		t.Errorf("sending again answers %+v, %v", sent, err)
	}
	if got := drainInbox(t, p.client("beta")); got["once"] != 1 || len(got) != 1 {
		t.Errorf("delivered are %v", got)
	}
}

// loseAnswers lets requests through and drops their answers.
type loseAnswers struct{}

func (*loseAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	return nil, errors.New("the answer was lost")
}

// TestServeAnswersOptions shows that the HTTP server below answers nothing by
// itself that the protocol has an answer for.
func TestServeAnswersOptions(t *testing.T) {
	p := startBroker(t, testConfig(t, ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("OPTIONS * is answered with %s", answer.Status)
	}
}
