package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

// keyFlags say where the secret of a new key goes.
type keyFlags struct {
	credentials bool
	url         string
}

const keyHelp = `

Its secret is printed, this once. With --credentials it is written to
agent-relay/agents/NAME.yaml in $XDG_CONFIG_HOME (default ~/.config; on Windows
%AppData%) instead, where the commands and the Go client of this user find it by
--agent NAME.`

func (f *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.credentials, "credentials", false, "write the key to a file of this user, and do not print it")
	cmd.Flags().StringVar(&f.url, "url", "", "the broker's address to write beside it (default $AGENT_RELAY_URL, else that of the config)")
}

// credentialsPlace is where the credentials of an agent go, and the broker's
// address that goes with them. Both are empty where none are asked for.
func (a *app) credentialsPlace(f *keyFlags, config, agent string) (path, address string, err error) {
	if !f.credentials {
		return "", "", nil
	}
	home, err := configHome(a.env)
	if err != nil {
		return "", "", fmt.Errorf("find a place for the credentials: %w", err)
	}
	address = firstOf(f.url, a.env("AGENT_RELAY_URL"))
	if address == "" {
		c, err := a.hooksConfigOf(config)
		if err != nil {
			return "", "", err
		}
		address = c.baseURL()
		if u, err := url.Parse(address); err == nil && u.Port() == "0" {
			return "", "", usagef("%s leaves the broker's port open (%s); name its address with --url or AGENT_RELAY_URL", c.file, c.Listen)
		}
	}
	return client.CredentialsFile(home, agent), address, nil
}

// showKey shows a new key, or saves it at path. A key that cannot be saved is
// shown: nobody can be told it again.
func (a *app) showKey(d *display, k client.Key, path, address string) error {
	var failed error
	if path != "" {
		if failed = (client.Credentials{URL: address, Agent: k.Agent, Key: k.Secret}).Save(path); failed != nil {
			failed = fmt.Errorf("%w; the key is printed instead", failed)
			path = ""
		}
	}
	document := struct {
		Agent       string  `json:"agent"`
		ID          string  `json:"key_id"`
		Secret      string  `json:"secret,omitempty"`
		NotAfter    *string `json:"not_after,omitempty"`
		Credentials string  `json:"credentials,omitempty"`
	}{Agent: k.Agent, ID: k.ID, NotAfter: orNull(timestamp(k.NotAfter)), Credentials: path}
	if path == "" {
		document.Secret = k.Secret
	}
	if !d.json {
		a.note("%s has the key %s", k.Agent, k.ID)
	}
	err := d.result(document, "%s", firstOf(path, k.Secret))
	if failed != nil {
		return failed
	}
	return err
}

func (a *app) agentAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Register an agent, and give it a key of its own",
		Long: `Makes an agent known, so that others may send to it, and gives it its first key.
From then on nothing but its own keys is good for it.` + keyHelp + controlHelp,
		Example: `  agent-relay agent add worker --credentials
  agent-relay agent add planner --description "plans the work" --allow worker`,
		Args: agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	var key keyFlags
	key.add(cmd)
	var changes changeFlags
	changes.add(cmd, false)
	var change client.AgentChange
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		change, err = changes.change(cmd)
		return err
	}
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		path, address, err := a.credentialsPlace(&key, flags.config, args[0])
		if err != nil {
			return err
		}
		k, err := c.AddAgent(ctx, args[0], change)
		if err != nil {
			return err
		}
		return a.showKey(d, k, path, address)
	})
	return cmd
}

func (a *app) agentRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give an agent a new key, and let its old ones end",
		Long: `Makes a further key. The agent's older ones end after --overlap, so that it can
change over meanwhile.` + keyHelp + controlHelp,
		Example: `  agent-relay agent rotate worker --credentials
  agent-relay agent rotate worker --overlap 10m`,
		Args: agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	var key keyFlags
	key.add(cmd)
	var overlap time.Duration
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the old keys stay good; 0s ends them at once")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if overlap < 0 || overlap > 366*24*time.Hour {
			return usagef("--overlap must be from 0s to 8784h")
		}
		return nil
	}
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		path, address, err := a.credentialsPlace(&key, flags.config, args[0])
		if err != nil {
			return err
		}
		k, err := c.RotateKey(ctx, args[0], overlap)
		if err != nil {
			return aboutAgent(args[0], err)
		}
		return a.showKey(d, k, path, address)
	})
	return cmd
}

func (a *app) agentRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke NAME KEY",
		Short: "End a key of an agent at once",
		Long: `Ends the key of this id, as "agent-relay agent show" lists it. An agent whose
last key ended is refused until it is given another one (rotate), or removed.` + controlHelp,
		Example: "  agent-relay agent revoke worker 0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e",
		Args:    agentArguments(cobra.ExactArgs(2)),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		if err := c.RevokeKey(ctx, args[0], args[1]); err != nil {
			return aboutAgent(args[0], err)
		}
		return d.result(map[string]string{"agent": args[0], "key_id": args[1]}, "the key %s has ended", args[1])
	})
	return cmd
}
