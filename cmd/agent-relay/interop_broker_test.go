package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// interopBroker is the program itself, serving in this process.
type interopBroker struct {
	url    string
	config string
	stop   context.CancelFunc
	ended  chan int
	stderr *interopLog
}

func startInteropBroker(t *testing.T) *interopBroker {
	t.Helper()
	dir := t.TempDir()
	b := &interopBroker{config: filepath.Join(dir, "config.yaml")}
	config := "listen: 127.0.0.1:0\nsecret: " + interopSecret + "\ndata_dir: " + strconv.Quote(filepath.Join(dir, "data")) + "\n"
	if err := os.WriteFile(b.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// start returns once the broker listens.
func (b *interopBroker) start() error {
	// Not the test's context: cleanup ends the broker, and looks at its status.
	ctx, stop := context.WithCancel(context.Background())
	b.stop, b.ended, b.stderr = stop, make(chan int, 1), &interopLog{listening: make(chan string, 1)}
	ended, stderr := b.ended, b.stderr
	go func() {
		ended <- run(ctx, []string{"serve", "--config", b.config}, nil, strings.NewReader(""), io.Discard, stderr)
	}()
	select {
	case addr := <-b.stderr.listening:
		b.url = "http://" + addr
		return nil
	case status := <-b.ended:
		b.ended <- status
		return fmt.Errorf("serve ended with %d:\n%s", status, b.stderr.text())
	}
}

func (b *interopBroker) end() error {
	b.stop()
	if status := <-b.ended; status != exitOK {
		return fmt.Errorf("serve ended with %d:\n%s", status, b.stderr.text())
	}
	return nil
}

// restart opens the same data anew, on another port.
func (b *interopBroker) restart() error {
	if err := b.end(); err != nil {
		return err
	}
	return b.start()
}

// call makes one signed request and returns the answer's bytes.
func (b *interopBroker) call(t *testing.T, agent, method, target, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set(agentrelay.HeaderAgent, agent)
	req.Header.Set(agentrelay.HeaderTimestamp, timestamp)
	req.Header.Set(agentrelay.HeaderSignature, agentrelay.Sign(interopSecret, method, target, timestamp, []byte(body)))
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s %v", method, target, res.StatusCode, got, err)
	}
	return string(got)
}

// interopLog keeps what a broker logs, and finds out where it listens.
type interopLog struct {
	listening chan string
	mu        sync.Mutex
	all       bytes.Buffer
}

func (l *interopLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	var entry struct{ Msg, Addr string }
	if json.Unmarshal(p, &entry) == nil && entry.Msg == "listening" {
		l.listening <- entry.Addr
	}
	return len(p), nil
}

func (l *interopLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
