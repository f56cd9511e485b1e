package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// startsProcess marks a test that runs the broker in a process of its own and
// sends it signals. Such tests mostly wait, so they do so together.
func startsProcess(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent SIGTERM there")
	}
	t.Parallel()
}

// seenAs waits until each agent whose name has the prefix, count of them, was
// seen online, or offline, at some time.
func seenAs(t *testing.T, observer *client.Client, prefix string, count int, online bool) {
	t.Helper()
	seen := map[string]bool{}
	err := waitFor(func() error {
		peers, err := observer.Peers(t.Context())
		if err != nil {
			return err
		}
		for _, p := range peers {
			if strings.HasPrefix(p.Agent, prefix) && p.Online == online {
				seen[p.Agent] = true
			}
		}
		if len(seen) < count {
			return fmt.Errorf("%d of %d agents were seen with online=%v", len(seen), count, online)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// trickle begins a request whose body never comes to its end, and returns when
// the broker is reading it.
func trickle(t *testing.T, url, secret string) {
	t.Helper()
	const length = 1 << 20
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	now := fmt.Sprint(time.Now().Unix())
	// The broker asks for the body once it is about to read it.
	_, err = fmt.Fprintf(conn, "POST /messages HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n%s: trickler\r\n%s: %s\r\n%s: %s\r\n\r\n",
		length, agentrelay.HeaderAgent, agentrelay.HeaderTimestamp, now, agentrelay.HeaderSignature, agentrelay.Sign(secret, "POST", "/messages", now, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := conn.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
}

// A broker that is told to end answers the polls that wait, does not wait for
// ever for a request that does not come to its end, and keeps what it has
// accepted.
func TestServeDrains(t *testing.T) {
	startsProcess(t)
	const pollers = 20
	r := startRelay(t, relayOptions{lines: []string{"heartbeat: 1s"}})
	observer := r.registered("observer")
	r.registered("inbox")
	sent, err := observer.Send(t.Context(), client.Outgoing{To: "inbox"})
	if err != nil {
		t.Fatal(err)
	}
	var clients []*client.Client
	for n := range pollers {
		clients = append(clients, r.registered(fmt.Sprint("poller-", n)))
	}
	seenAs(t, observer, "poller-", pollers, false)
	var wait sync.WaitGroup
	for n, c := range clients {
		wait.Go(func() {
			var got []agentrelay.Message
			var err error
			if n%2 == 0 {
				var page client.Page
				page, err = c.Poll(t.Context(), client.PollOptions{Wait: time.Minute})
				got = page.Messages
			} else {
				got, err = c.Pull(t.Context(), client.PullOptions{Wait: time.Minute})
			}
			if err != nil || len(got) != 0 {
				t.Errorf("a poll that waited: %d messages, %v", len(got), err)
			}
		})
	}
	// Who polls counts as online.
	seenAs(t, observer, "poller-", pollers, true)
	trickle(t, r.url, scriptSecret)

	r.signal(syscall.SIGTERM)
	wait.Wait()
	if status, took := r.wait(); status != 0 || took > endTimeout {
		t.Errorf("exit status %d after %s", status, took)
	}
	r.waitLog("cut off requests that were not complete")
	r.waitLog("msg=ended")

	again := startRelay(t, relayOptions{config: r.config})
	page, err := again.client("inbox").Poll(t.Context(), client.PollOptions{})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].ID != sent.ID {
		t.Errorf("after a restart: %v, %v", page, err)
	}
}

// A second signal does not wait, and still nothing is left of a broker that
// keeps its messages in memory.
func TestServeSecondSignal(t *testing.T) {
	startsProcess(t)
	for _, storage := range []string{storageSQLite, storageMemory} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			temporary := t.TempDir()
			r := startRelay(t, relayOptions{lines: []string{"storage: " + storage}, env: []string{"TMPDIR=" + temporary}})
			trickle(t, r.url, scriptSecret)
			r.signal(os.Interrupt)
			r.waitLog("msg=draining")
			r.signal(syscall.SIGTERM)
			if status, took := r.wait(); status == 0 || took >= drainTimeout {
				t.Errorf("exit status %d after %s", status, took)
			}
			expectEmpty(t, temporary)
		})
	}
}

func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("%s holds %v, %v", dir, entries, err)
	}
}

func TestServeMemory(t *testing.T) {
	startsProcess(t)
	temporary := t.TempDir()
	data := filepath.Join(t.TempDir(), "data")
	o := relayOptions{
		config: relayConfig(t, "storage: memory", "data_dir: "+data),
		env:    []string{"TMPDIR=" + temporary},
	}
	r := startRelay(t, o)
	entries, err := os.ReadDir(temporary)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the temporary directory: %v, %v", info, err)
	}
	r.registered("alpha")
	r.signal(syscall.SIGTERM)
	if status, _ := r.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	expectEmpty(t, temporary)
	again := startRelay(t, o)
	peers, err := again.client("beta").Peers(t.Context())
	if err != nil || len(peers) != 0 {
		t.Errorf("after a restart: %v, %v", peers, err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// Data directory and files are the owner's alone.
func TestServeModes(t *testing.T) {
	startsProcess(t)
	data := filepath.Join(t.TempDir(), "a", "data")
	r := startRelay(t, relayOptions{lines: []string{"data_dir: " + data}})
	r.registered("alpha")
	for path, want := range map[string]os.FileMode{filepath.Dir(data): 0o700, data: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(data)
	if err != nil || len(entries) == 0 {
		t.Fatalf("got %v, %v", entries, err)
	}
	sockets, err := os.ReadDir(filepath.Join(data, "run"))
	if err != nil || len(sockets) == 0 {
		t.Fatalf("got %v, %v", sockets, err)
	}
	for _, e := range append(entries, sockets...) {
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestServeNotifiesSystemd(t *testing.T) {
	startsProcess(t)
	dir, err := os.MkdirTemp("", "notify") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		buf := make([]byte, 256)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	r := startRelay(t, relayOptions{env: []string{"NOTIFY_SOCKET=" + socket}})
	if got := next(); got != "READY=1" {
		t.Errorf("at first: %q", got)
	}
	r.registered("alpha") // it is ready indeed
	r.signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("then: %q", got)
	}
	if status, _ := r.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestServeWithoutItsNotifySocket(t *testing.T) {
	startsProcess(t)
	r := startRelay(t, relayOptions{env: []string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "none")}})
	r.waitLog("cannot notify systemd")
	r.registered("alpha")
}

// Away from a terminal the log is JSON, a record a line.
func TestServeLogsJSON(t *testing.T) {
	startsProcess(t)
	r := startRelay(t, relayOptions{args: []string{"serve"}})
	r.signal(syscall.SIGTERM)
	r.wait()
	var messages []string
	for line := range strings.Lines(r.log.String()) {
		var record struct {
			Msg, Level, Addr string
			Time             time.Time
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time.IsZero() || record.Level != "INFO" {
			t.Errorf("%v: %s", err, line)
		}
		messages = append(messages, record.Msg)
	}
	if got := strings.Join(messages, " "); got != "listening draining ended" {
		t.Errorf("logged %q", got)
	}
}

// Nothing that is confidential gets into the log, whatever its level.
func TestServeLogCanary(t *testing.T) {
	startsProcess(t)
	const canary = "canary-5d41402abc4b2a76"
	for level := range logLevels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			r := startRelay(t, relayOptions{
				// The address is logged at level info.
				args:  []string{"serve", "--log-format", "text", "--log-level", "info"},
				lines: []string{"max_body_bytes: 2048"},
			})
			if level != "info" {
				config := r.config
				r.signal(syscall.SIGTERM)
				r.wait()
				r = startAt(t, config, level)
			}
			exercise(t, r, canary)
			r.signal(syscall.SIGTERM)
			r.wait()
			log := r.log.String()
			for what, text := range map[string]string{"a body": canary, "the secret": scriptSecret, "part of the secret": scriptSecret[:16]} {
				if strings.Contains(log, text) {
					t.Errorf("the log holds %s:\n%s", what, log)
				}
			}
			if len(r.signed.seen) == 0 {
				t.Error("nothing was signed")
			}
			for _, signature := range r.signed.seen {
				if strings.Contains(log, signature) {
					t.Errorf("the log holds a signature:\n%s", log)
				}
			}
		})
	}
}

// startAt starts a broker at a level at which it does not log its address.
func startAt(t *testing.T, config, level string) *relay {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeConfig(config, address, "max_body_bytes: 2048", "data_dir: '"+filepath.Join(filepath.Dir(config), "data")+"'"); err != nil {
		t.Fatal(err)
	}
	r := launchRelay(t, relayOptions{config: config, args: []string{"serve", "--log-format", "text", "--log-level", level}})
	r.url = "http://" + address
	if err := waitFor(func() error { return healthy(r.url) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// exercise makes calls of every kind, good and bad, with the canary in all
// that is nobody's business.
func exercise(t *testing.T, r *relay, canary string) {
	t.Helper()
	a, b := r.registered("alpha"), r.registered("beta")
	body := client.TextBody(canary)
	for n := range 3 {
		id := fmt.Sprint("message-", n)
		if _, err := a.Send(t.Context(), client.Outgoing{To: "beta", ID: id, Body: body, Ack: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Send(t.Context(), client.Outgoing{To: "beta", ID: "message-0", Body: client.TextBody(canary + "!")}); !errors.Is(err, agentrelay.ErrIDConflict) {
		t.Errorf("another body: %v", err)
	}
	if _, err := a.Send(t.Context(), client.Outgoing{To: "nobody", Body: body}); !errors.Is(err, agentrelay.ErrNoSuchAgent) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := a.Send(t.Context(), client.Outgoing{To: "beta", Body: client.TextBody(strings.Repeat(canary, 200))}); !errors.Is(err, agentrelay.ErrBodyTooLarge) {
		t.Errorf("a large body: %v", err)
	}
	if _, err := b.Ack(t.Context(), "message-0", client.AckOptions{Error: canary}); err != nil {
		t.Fatal(err)
	}
	leased, err := b.Pull(t.Context(), client.PullOptions{})
	if err != nil || len(leased) != 2 {
		t.Fatalf("pulled %d, %v", len(leased), err)
	}
	for n, outcome := range []agentrelay.Outcome{agentrelay.OutcomeCompleted, agentrelay.OutcomeRetry} {
		if _, err := b.Settle(t.Context(), client.Settlement{ID: leased[n].ID, LeaseID: leased[n].LeaseID, Outcome: outcome, Error: canary}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Settle(t.Context(), client.Settlement{ID: leased[0].ID, LeaseID: canary, Outcome: agentrelay.OutcomeCompleted}); err == nil {
		t.Error("settled with the wrong lease")
	}
	for range 6 {
		wrong, err := client.New(client.Options{URL: r.url, Agent: "gamma", Secret: scriptSecret + "x", Transport: &r.signed, Pauses: client.NoRetries})
		if err != nil {
			t.Fatal(err)
		}
		if err := wrong.Register(t.Context()); err == nil {
			t.Error("registered with a wrong secret")
		}
		wrong.Close()
	}
}
