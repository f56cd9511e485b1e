package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print messages as they come, until interrupted",
		Long: `Registers the agent and prints the messages that wait for it, then each new one
as it comes. An interrupt ends it with exit status 0. It begins with the oldest
message that waits, whatever recv printed, and changes nothing for recv.

Once watch has found the broker it stays: while the broker is away or busy it
tries again after 2, 4, 8 and up to 30 seconds, and goes on where it was.` + jsonHelp + connectionHelp,
		Example: `  agent-relay watch --agent beta | while read -r message; do …; done`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	var since string
	cmd.Flags().StringVar(&since, "since", "", "begin after this `cursor` or message id")
	run := a.calling(flags, true, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		return a.watch(ctx, c, d, since)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

func (a *app) watch(ctx context.Context, c *client.Client, d *display, since string) error {
	for m, err := range c.Messages(ctx, client.MessagesOptions{
		Since: since,
		OnAway: func(err error, pause time.Duration) {
			a.note("%s; trying again in %v", printable(err.Error()), pause.Round(time.Second))
		},
		OnBack:  func() { a.note("the broker is back") },
		OnReset: a.noteReset,
	}) {
		if err != nil {
			return err
		}
		d.messages([]agentrelay.Message{m})
		if err := d.flush(); err != nil {
			return err
		}
	}
	return nil
}
