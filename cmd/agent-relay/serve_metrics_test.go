package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/client"
)

// Metrics are shown on a loopback address, elsewhere only if they are asked
// for, and nowhere if they are not wanted.
func TestProcessShowsMetrics(t *testing.T) {
	for _, test := range []struct {
		listen  string
		metrics *bool
		proxied bool
		status  int
	}{
		{"127.0.0.1:0", nil, false, http.StatusOK},
		{"127.0.0.1:0", new(true), false, http.StatusOK},
		{"127.0.0.1:0", new(false), false, http.StatusUnauthorized},
		{"localhost:0", nil, false, http.StatusOK},
		{"127.0.0.1:0", nil, true, http.StatusUnauthorized},
		{"127.0.0.1:0", new(true), true, http.StatusOK},
		{"0.0.0.0:0", nil, false, http.StatusUnauthorized},
		{"0.0.0.0:0", new(true), false, http.StatusOK},
		{"0.0.0.0:0", new(false), false, http.StatusUnauthorized},
	} {
		c := processConfig(t)
		c.Listen, c.Metrics, c.BehindProxy = test.listen, test.metrics, test.proxied
		c.TLS = writeCertificate(t, t.TempDir(), 1)
		p := openTestProcess(t, c, io.Discard)
		answer := httptest.NewRecorder()
		q := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		q.RemoteAddr = "127.0.0.1:9"
		p.http.Handler.ServeHTTP(answer, q)
		if answer.Code != test.status {
			t.Errorf("%s, metrics: %v: got %d, want %d", test.listen, test.metrics, answer.Code, test.status)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.run(ctx); err != nil {
			t.Error(err)
		}
	}
}

// What a broker that runs does is in its metrics, from the store to HTTP, and
// those who wait are woken all the same.
func TestServeMetrics(t *testing.T) {
	startsProcess(t)
	r := startRelay(t, relayOptions{})
	ann, ben := r.registered("ann"), r.registered("ben")
	woken := make(chan error, 1)
	go func() {
		_, err := ben.Poll(t.Context(), client.PollOptions{Wait: 30 * time.Second})
		woken <- err
	}()
	waitMetric(t, r, "agent_relay_waiting_polls 1")
	if _, err := ann.Send(t.Context(), client.Outgoing{To: "ben", Body: client.TextBody("hello")}); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"agent_relay_waiting_polls 0",
		`agent_relay_messages_accepted_total{type="message"} 1`,
		"agent_relay_messages_delivered_total 1",
		`agent_relay_http_requests_total{method="POST",route="/messages",status="201"} 1`,
		`agent_relay_http_requests_total{method="GET",route="/messages",status="200"} 1`,
	} {
		waitMetric(t, r, line)
	}
	text, err := scrape(r)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "agent_relay_store_commit_duration_seconds_count 0\n") || strings.Contains(text, "agent_relay_store_database_bytes 0\n") {
		t.Errorf("the store is not in the metrics:\n%s", text)
	}
}

// waitMetric waits until a scrape has a line.
func waitMetric(t *testing.T, r *relay, line string) {
	t.Helper()
	err := waitFor(func() error {
		text, err := scrape(r)
		if err == nil && !strings.Contains(text, "\n"+line+"\n") {
			return fmt.Errorf("the metrics lack %s", line)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func scrape(r *relay) (string, error) {
	answer, err := (&http.Client{Transport: &r.signed, Timeout: 10 * time.Second}).Get(r.url + "/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
