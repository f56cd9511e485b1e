package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

// BenchmarkProcess measures the whole program with a full store: how long it
// takes until it listens, and the memory it needs while 64 clients send, poll
// and wait. Run it with -benchtime=1x.
func BenchmarkProcess(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("memory is read from /proc, which this system lacks")
	}
	for _, stored := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			config := testConfig(b, "rate_limit: {per_agent: 10000000, per_address: 120}\nmax_queued: 100000000\nmax_queued_bytes: 2147483647\n")
			fillStore(b, filepath.Join(filepath.Dir(config), "data"), stored)
			for b.Loop() {
				began := time.Now()
				p := startBroker(b, config)
				b.ReportMetric(float64(time.Since(began).Milliseconds()), "start-ms")
				b.ReportMetric(resident(b, p.command.Process.Pid, "VmRSS"), "idle-MB")
				began = time.Now()
				sent := load(b, p)
				b.ReportMetric(float64(sent)/time.Since(began).Seconds(), "sends/s")
				b.ReportMetric(resident(b, p.command.Process.Pid, "VmHWM"), "peak-MB")
				p.kill()
			}
		})
	}
}

// fillStore stores n messages for the agent sink.
func fillStore(b *testing.B, dir string, n int) {
	b.Helper()
	ctx := context.Background()
	s, err := sqlite.Open(ctx, sqlite.Options{Dir: dir, Options: store.Options{MaxQueued: 1 << 30, MaxQueuedBytes: 1 << 40}})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Register(ctx, "sink"); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range 256 {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := s.Enqueue(ctx, agentrelay.Message{
					ID: "m" + strconv.FormatInt(i, 10), From: "source", To: "sink",
					Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Body: client.TextBody("hello, how are you today?"),
				}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// load has 64 clients send, poll the full inbox and wait for messages, and
// returns how many were sent.
func load(b *testing.B, p *brokerProcess) int64 {
	const clients, each = 64, 300
	ctx := b.Context()
	var sent atomic.Int64
	var wait sync.WaitGroup
	var agents []*client.Client
	for n := range clients {
		c := p.client(fmt.Sprint("agent-", n))
		if err := c.Register(ctx); err != nil {
			b.Fatal(err)
		}
		agents = append(agents, c)
	}
	for n, c := range agents {
		next, sink := agents[(n+1)%clients].Agent(), p.client("sink")
		wait.Go(func() {
			cursor := ""
			for i := range each {
				if _, err := c.Send(ctx, client.Outgoing{To: next, Body: client.TextBody("hello")}); err != nil {
					b.Error(err)
					return
				}
				sent.Add(1)
				page, err := c.Poll(ctx, client.PollOptions{Since: cursor, Wait: time.Second})
				if err != nil {
					b.Error(err)
					return
				}
				cursor = page.Cursor
				if i%10 == 0 {
					if _, err := sink.Poll(ctx, client.PollOptions{Limit: 200}); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	return sent.Load()
}

// resident reads a memory figure of a process, in MB.
func resident(b *testing.B, pid int, name string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatalf("%s is not in /proc/%d/status", name, pid)
	return 0
}
