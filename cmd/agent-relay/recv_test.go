package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// receives runs recv for beta, as a process of its own.
func (r *relay) receives(state string, args ...string) *exec.Cmd {
	cmd := exec.Command("agent-relay", append([]string{"recv", "--agent", "beta", "--url", r.url, "--config", r.config}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	return cmd
}

// sendBeta sends n messages with that much text to beta.
func (r *relay) sendBeta(n, size int) {
	r.t.Helper()
	r.registered("beta")
	alpha := r.client("alpha")
	for i := range n {
		_, err := alpha.Send(r.t.Context(), client.Outgoing{To: "beta", ID: fmt.Sprint("m/", i), Body: client.TextBody(strings.Repeat("x", size))})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// ids are those of a printed page.
func ids(t *testing.T, out []byte) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(string(out)) {
		var m agentrelay.Message
		if err := m.UnmarshalJSON([]byte(line)); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		found = append(found, m.ID)
	}
	return found
}

// Two that run at once lose nothing, and print nothing twice.
func TestRecvTogether(t *testing.T) {
	r := startRelay(t, relayOptions{})
	const messages = 40
	r.sendBeta(messages, 1)
	state := t.TempDir()
	var mu sync.Mutex
	printed := map[string]int{}
	var wait sync.WaitGroup
	for reader := range 3 {
		wait.Go(func() {
			for {
				out, err := r.receives(state, "--limit", fmt.Sprint(reader+2)).Output()
				if err != nil {
					t.Error(err)
					return
				}
				if len(out) == 0 {
					return
				}
				mu.Lock()
				for _, id := range ids(t, out) {
					printed[id]++
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for i := range messages {
		if id := fmt.Sprint("m/", i); printed[id] != 1 {
			t.Errorf("%s was printed %d times", id, printed[id])
		}
	}
}

// What recv was printing when it was killed is printed again.
func TestRecvKilled(t *testing.T) {
	r := startRelay(t, relayOptions{})
	r.sendBeta(3, 100_000) // more than a pipe holds
	state := t.TempDir()
	cmd := r.receives(state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadByte(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Process.Kill(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("recv ended well although nobody read what it printed")
	}
	again, err := r.receives(state).Output()
	if got := ids(t, again); err != nil || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// Where it cannot be kept how far recv came, that is told with what to do.
func TestRecvCannotKeep(t *testing.T) {
	dir := t.TempDir()
	k := keptPlace{
		// A name so long that a file can have it, and no longer one beside it.
		file:    client.ProgressFile(filepath.Join(dir, strings.Repeat("x", 254))),
		lock:    flock.New(filepath.Join(dir, "lock")),
		timeout: placeTimeout,
	}
	for name, err := range map[string]error{
		"reset": k.reset(t.Context()),
		"update": k.update(t.Context(), func(p *client.Progress) error {
			p.Cursor = "new"
			return nil
		}),
	} {
		if err == nil || !strings.Contains(err.Error(), "set XDG_STATE_HOME") || !strings.Contains(err.Error(), "or give --since") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One waits while another prints, but not for ever.
func TestRecvWaitsForAnother(t *testing.T) {
	c, err := client.New(client.Options{Agent: "beta", Secret: scriptSecret})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{env: variables("XDG_STATE_HOME", t.TempDir())}
	kept, err := a.keptPlace(c)
	if err != nil {
		t.Fatal(err)
	}
	other := flock.New(kept.lock.Path())
	if locked, err := other.TryLock(); err != nil || !locked {
		t.Fatal(locked, err)
	}
	defer other.Close()
	change := func(*client.Progress) error {
		t.Error("changed while another recv prints")
		return nil
	}

	kept.timeout = 1
	err = kept.update(t.Context(), change)
	if exitStatus(err) != exitTryAgain || !strings.Contains(fmt.Sprint(err), "another recv of this agent") {
		t.Errorf("at the time limit: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := kept.update(ended, change); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
