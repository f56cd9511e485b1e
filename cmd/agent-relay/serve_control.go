package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/socket"
	"github.com/agent-relay/agent-relay/internal/hook"
)

// openControlSocket makes the socket through which p is driven, unless it is
// off. The broker's data is in dataDir.
func (p *process) openControlSocket(a *app, c *config, dataDir string) error {
	path, err := c.controlSocket(a.env, dataDir)
	if err != nil || path == "" || runtime.GOOS == "windows" {
		return err
	}
	control := socket.NewControl(socket.ControlOptions{
		Broker: p.broker, Connectors: bridgedConnectors{p}, Hooks: p.hooks, Version: a.version, Log: p.log,
		Reload: func(context.Context) ([]string, error) { return p.reload() },
	})
	p.controlSocket, err = socket.Listen(socket.Options{Path: path, Name: "control", Serve: control.Serve, Log: p.log})
	if err != nil {
		return fmt.Errorf("the control socket: %w; set another control_socket in %s, or off", err, c.file)
	}
	p.broker.Subscribe(control.Publish)
	p.control = control
	return nil
}

// serveControl serves the control socket, if there is one.
func (p *process) serveControl(ctx context.Context) error {
	if p.controlSocket == nil {
		return nil
	}
	err := p.controlSocket.Run(ctx)
	p.controlSocket = nil // it is closed
	return err
}

// hookDone tells who drives the broker of hooks that failed.
func (p *process) hookDone(kind hook.Kind, r hook.Result) {
	if p.control == nil {
		return
	}
	for _, f := range r.Errors {
		p.control.HookFailed(string(kind), f.Script)
	}
}

// reload reads the config again. Where it is invalid the old one stays, and the
// error says why. It returns the keys of what has changed and counts only when
// the broker is started.
func (p *process) reload() (needsRestart []string, err error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	next, err := loadConfig(p.config.file, p.app.env)
	if err != nil {
		p.log.Error("the config was not reloaded, the old one stays", "error", err)
		return nil, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: "the old config stays: " + err.Error()}
	}
	p.broker.Reload(next.reloadable())
	needsRestart = p.config.needsRestart(next)
	p.log.Info("config reloaded", "config", next.file, "needs_restart", strings.Join(needsRestart, ", "))
	if p.control != nil {
		p.control.ConfigReloaded()
	}
	return needsRestart, nil
}

// hangUp is what SIGHUP asks for: to end, if it came because the terminal is
// gone on which the broker was started; else to read the config again.
func (p *process) hangUp() (end bool) {
	if p.terminal && !onTerminal(p.app) {
		return true
	}
	_, _ = p.reload() // it is logged
	return false
}

func onTerminal(a *app) bool {
	f, ok := a.stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
