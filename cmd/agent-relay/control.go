package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// controlFlags are what every command has that drives the broker.
type controlFlags struct{ config, socket string }

const controlHelp = `

It goes through the control socket of the broker on this machine, as the user
who runs it, or root; no secret is needed.`

func addControlFlags(cmd *cobra.Command) *controlFlags {
	f := &controlFlags{}
	cmd.Flags().StringVar(&f.config, "config", "", configFlagHelp)
	cmd.Flags().StringVar(&f.socket, "socket", "", "the control socket (default that of the config, or the user's own)")
	addJSONFlag(cmd)
	return f
}

// controlAction is what a command does with its arguments and a broker, and
// where it shows what came of it.
type controlAction func(ctx context.Context, args []string, c *client.Control, d *display) error

// controlling makes what cobra runs of an action.
func (a *app) controlling(f *controlFlags, act controlAction) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		path, err := a.controlPath(f)
		if err != nil {
			return err
		}
		c, err := client.DialControl(cmd.Context(), path)
		if err != nil {
			return err
		}
		d := a.display(cmd, false)
		return errors.Join(act(cmd.Context(), args, c, d), d.flush(), c.Close())
	}
}

// live is controlling for a command that runs until it is interrupted, which
// is its clean end.
func (a *app) live(f *controlFlags, act controlAction) func(*cobra.Command, []string) error {
	run := a.controlling(f, act)
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
}

// controlPath is where the broker's control socket should be.
func (a *app) controlPath(f *controlFlags) (string, error) {
	if f.socket != "" {
		return f.socket, nil
	}
	c, err := a.controlConfigOf(f.config)
	if err != nil {
		return "", err
	}
	path, err := c.controlSocket(a.env, c.DataDir)
	switch {
	case err != nil:
		return "", err
	case path == "":
		return "", usagef("the control socket is off (control_socket in %s); turn it on, or name another one with --socket", c.file)
	case !filepath.IsAbs(path):
		return "", usagef("a broker with storage: %s has its control socket in a directory of its own; set control_socket in %s, or name it with --socket", storageMemory, c.file)
	}
	return path, nil
}

// controlConfigOf is the config that tells where the control socket is. One
// that is invalid tells what can be read of it: the broker runs on with the one
// before, and says what is wrong when it is to reload.
func (a *app) controlConfigOf(flag string) (*config, error) {
	c, err := a.hooksConfigOf(flag)
	var invalid *configError
	if !errors.As(err, &invalid) {
		return c, err
	}
	path, err := configPath(flag, a.env)
	if err != nil {
		return nil, err
	}
	data, err := readConfigFile(path)
	if err != nil {
		return nil, err
	}
	c, _ = parseConfig(path, data)
	if c.DataDir == "" {
		home, err := dataHome(a.env)
		if err != nil {
			return nil, invalid
		}
		c.DataDir = dataDir(home)
	}
	return c, nil
}

// aboutAgent adds to an error about an agent what to do.
func aboutAgent(name string, err error) error {
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Code != agentrelay.CodeNoSuchAgent {
		return err
	}
	better := *e
	better.Message = fmt.Sprintf("there is no agent %q", name)
	if len(e.Suggestions) == 0 {
		better.Message += "; `agent-relay agent list` shows those that there are"
	}
	return &better
}
