//go:build !windows

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// operated is a broker in a process of its own, with a control socket.
type operated struct {
	*relay
	socket string
	lines  []string
}

// startOperated starts one; further lines of the config may be given.
func startOperated(t *testing.T, lines ...string) *operated {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "c.sock")
	lines = append(lines, "control_socket: "+socket, "hooks: { socket: off, dir: '"+filepath.Join(dir, "hooks.d")+"' }")
	return &operated{startRelay(t, relayOptions{lines: lines}), socket, lines}
}

func (o *operated) dial() *client.Control {
	o.t.Helper()
	c, err := client.DialControl(o.t.Context(), o.socket)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = c.Close() })
	return c
}

// rewrite replaces the config's further lines.
func (o *operated) rewrite(lines ...string) {
	o.t.Helper()
	data := "data_dir: '" + filepath.Join(filepath.Dir(o.config), "data") + "'"
	if err := writeConfig(o.config, "127.0.0.1:0", append(append(lines, o.lines...), data)...); err != nil {
		o.t.Fatal(err)
	}
}

// SIGHUP has the config read again; an invalid one changes nothing.
func TestHangUp(t *testing.T) {
	o := startOperated(t)
	alpha := o.registered("alpha")
	o.registered("beta")
	send := func() error {
		_, err := alpha.Send(t.Context(), client.Outgoing{To: "beta"})
		return err
	}
	events, err := o.dial().Subscribe(t.Context(), "config_reloaded")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if err := send(); err != nil {
		t.Fatal(err)
	}
	o.rewrite("agents: { alpha: { allowed_targets: [] } }", "lease: 5m")
	o.signal(syscall.SIGHUP)
	if e, err := events.Next(t.Context()); err != nil || e.Name != "config_reloaded" {
		t.Errorf("got %+v, %v", e, err)
	}
	o.waitLog(`config reloaded.*needs_restart=lease\n`)
	if err := send(); !errors.Is(err, agentrelay.ErrForbidden) {
		t.Errorf("after the reload: %v", err)
	}
	o.rewrite("heartbeat: never")
	o.signal(syscall.SIGHUP)
	o.waitLog(`the config was not reloaded, the old one stays.*heartbeat: must be a duration`)
	if err := send(); !errors.Is(err, agentrelay.ErrForbidden) {
		t.Errorf("after a bad one: %v", err)
	}
	o.rewrite("agents: {}")
	o.signal(syscall.SIGHUP)
	if _, err := events.Next(t.Context()); err != nil {
		t.Error(err)
	}
	if err := send(); err != nil {
		t.Errorf("after the last reload: %v", err)
	}
	o.signal(os.Interrupt)
	if status, _ := o.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// A key that was told outlasts a crash right after.
func TestKeySurvivesKill(t *testing.T) {
	o := startOperated(t)
	c := o.dial()
	first, err := c.AddAgent(t.Context(), "worker", client.AgentChange{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.AddKey(t.Context(), "worker", time.Time{})
	o.signal(os.Kill)
	if err != nil {
		t.Fatal(err)
	}
	<-o.ended
	again := startRelay(t, relayOptions{config: o.config})
	for _, secret := range []string{first.Secret, second.Secret, scriptSecret} {
		worker, err := client.New(client.Options{URL: again.url, Agent: "worker", Secret: secret, Pauses: client.NoRetries})
		if err != nil {
			t.Fatal(err)
		}
		defer worker.Close()
		err = worker.Register(t.Context())
		if refused := secret == scriptSecret; refused != errors.Is(err, agentrelay.ErrUnauthenticated) || !refused && err != nil {
			t.Errorf("with %.4s…: %v", secret, err)
		}
	}
	if strings.Contains(again.log.String()+o.log.String(), first.Secret) {
		t.Error("the log holds a key")
	}
}

// Keys are rotated under traffic, and no request is refused.
func TestRotationUnderTraffic(t *testing.T) {
	o := startOperated(t)
	c := o.dial()
	key, err := c.AddAgent(t.Context(), "worker", client.AgentChange{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	current := func() string {
		mu.Lock()
		defer mu.Unlock()
		return key.Secret
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wait sync.WaitGroup
	requests := make(chan bool, 1)
	for range 4 {
		wait.Go(func() {
			for ctx.Err() == nil {
				worker, err := client.New(client.Options{URL: o.url, Agent: "worker", Secret: current(), Pauses: client.NoRetries})
				if err != nil {
					t.Error(err)
					return
				}
				for range 5 { // some of them with the key before
					if err := worker.Register(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						stop()
					}
				}
				worker.Close()
				select {
				case requests <- true:
				default:
				}
			}
		})
	}
	for range 4 {
		next, err := c.RotateKey(t.Context(), "worker", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			select {
			case <-requests:
			case <-ctx.Done():
			}
		}
		mu.Lock()
		key = next
		mu.Unlock()
	}
	for range 10 {
		select {
		case <-requests:
		case <-ctx.Done():
		}
	}
	stop()
	wait.Wait()
}

// Scripts that fail are told to who subscribed, whoever fired them.
func TestHookFailedEvent(t *testing.T) {
	o := startOperated(t)
	script := filepath.Join(filepath.Dir(o.socket), "hooks.d", "pre-message", "a.sh")
	if err := os.MkdirAll(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := o.dial()
	events, err := c.Subscribe(t.Context(), "hook_failed")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	o.registered("beta")
	result, err := c.FireHook(t.Context(), "pre-message", nil)
	if err != nil || result.OK || result.Errors[0].Code != 7 {
		t.Errorf("fired: %+v, %v", result, err)
	}
	heard := func() {
		t.Helper()
		if e, err := events.Next(t.Context()); err != nil || e.Hook != "pre-message" || e.Script != "a.sh" {
			t.Errorf("got %+v, %v", e, err)
		}
	}
	heard()
	err = waitFor(func() error { // that it is installed is noticed within a second
		if _, err := c.Send(t.Context(), "alpha", client.Outgoing{To: "beta"}); err != nil {
			return err
		}
		if strings.Count(o.log.String(), `msg="hook failed" hook=pre-message`) < 2 {
			return errors.New("the broker fired none yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	heard()
}
