package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

func (a *app) registerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Make an agent known to the broker",
		Long: `Makes an agent known to the broker, so that others can send to it. Repeating
it is harmless; recv, watch, pull and request do it, too.` + connectionHelp,
		Example: "  agent-relay register --agent alpha",
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		if err := c.Register(ctx); err != nil {
			return err
		}
		return d.result(struct {
			Agent string `json:"agent"`
			URL   string `json:"url"`
		}{c.Agent(), c.URL()}, "registered %s at %s", c.Agent(), c.URL())
	})
	return cmd
}
