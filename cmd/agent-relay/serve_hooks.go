package main

import (
	"fmt"
	"runtime"

	"github.com/agent-relay/agent-relay/broker/hooks"
	"github.com/agent-relay/agent-relay/broker/socket"
)

// newHooks makes what runs the scripts that c names.
func (c *config) newHooks(a *app, o hooks.Options) (*hooks.Dispatcher, error) {
	dir, err := c.hooksDir(a.env)
	if err != nil {
		return nil, err
	}
	o.Dir, o.Timeout, o.MaxConcurrent, o.Env = dir, c.Hooks.Timeout, c.Hooks.MaxConcurrent, a.env
	return hooks.New(o)
}

// openHookSocket makes the socket of p's hooks, unless it is off. The broker's
// data is in dataDir.
func (p *process) openHookSocket(a *app, c *config, dataDir string) error {
	path, err := c.hookSocket(a.env, dataDir)
	if err != nil || path == "" || runtime.GOOS == "windows" {
		return err
	}
	p.hookSocket, err = socket.Listen(socket.Options{Path: path, Name: "hook", Serve: socket.HookHandler(p.hooks), Log: p.log})
	if err != nil {
		return fmt.Errorf("the hook socket: %w; set another hooks.socket in %s, or off", err, c.file)
	}
	return nil
}
