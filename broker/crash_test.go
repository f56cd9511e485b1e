package broker

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

// doomedEnv names the data directory of a process that is to be killed.
const doomedEnv = "AGENT_RELAY_TEST_DOOMED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(doomedEnv); dir != "" {
		fmt.Println(doomed(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func openBroker(dir string) (*Broker, store.Store, error) {
	hub := NewHub()
	s, err := sqlite.Open(ctx, sqlite.Options{Dir: dir, Options: store.Options{Observe: hub.Observe}})
	if err != nil {
		return nil, nil, err
	}
	b, err := Open(ctx, Options{
		Store: s, Hub: hub, Secret: "the secret of these tests", Heartbeat: time.Minute, TTL: time.Hour,
		Lockout: Lockout{Failures: 5, Duration: time.Minute}, Log: slog.New(slog.DiscardHandler),
	})
	return b, s, err
}

// doomed writes a line for each change as soon as it is answered, and waits for
// its end.
func doomed(dir string) error {
	b, _, err := openBroker(dir)
	if err != nil {
		return err
	}
	first, err := b.AddAgent(ctx, "ann", AgentPatch{})
	if err != nil {
		return err
	}
	second, err := b.AddKey(ctx, "ann", time.Time{})
	if err != nil {
		return err
	}
	if err := b.RevokeKey(ctx, "ann", first.ID); err != nil {
		return err
	}
	fmt.Println(first.Secret)
	fmt.Println(second.Secret)
	select {}
}

// What was answered about keys holds after the process was killed.
func TestKeysSurviveKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	child := exec.Command(self, "-test.run=^$")
	child.Env = append(os.Environ(), doomedEnv+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var secrets []string
	for len(secrets) < 2 && lines.Scan() {
		secrets = append(secrets, lines.Text())
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if len(secrets) < 2 {
		t.Fatalf("the process said %q", strings.Join(secrets, "\n"))
	}
	b, s, err := openBroker(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for secret, want := range map[string]bool{secrets[0]: false, secrets[1]: true, b.options.Secret: false} {
		now := fmt.Sprint(time.Now().Unix())
		c, err := b.Challenge(Credentials{
			Agent: "ann", Timestamp: now, Address: "192.0.2.1",
			Signature: agentrelay.Sign(secret, "GET", "/peers", now, nil),
		})
		if err == nil {
			_, err = c.Verify("GET", "/peers", nil)
		}
		if (err == nil) != want {
			t.Errorf("a signature that is good: %v; got %v", want, err)
		}
	}
}
