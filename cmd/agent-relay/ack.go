package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

func (a *app) ackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ack ID",
		Short: "Acknowledge a message",
		Long: `Ends a message of the agent's inbox: it is delivered no more, and its sender
gets a receipt, whose id is printed. With --error the message counts as failed,
and the receipt carries the text. The first outcome counts; repeating it, or
giving another one, changes nothing and prints the same id.` + connectionHelp,
		Example: `  agent-relay ack --agent beta 0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e`,
		Args:    messageArguments(cobra.ExactArgs(1)),
	}
	flags := addClientFlags(cmd)
	var o client.AckOptions
	cmd.Flags().StringVar(&o.Error, "error", "", "end the message as failed, for this reason (`text`)")
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, args []string, c *client.Client, d *display) error {
		o.Failed = cmd.Flags().Changed("error")
		receipt, err := c.Ack(ctx, args[0], o)
		if err != nil {
			return err
		}
		return d.result(struct {
			ID      string `json:"id"`
			Receipt string `json:"receipt"`
		}{args[0], receipt}, "%s", receipt)
	})
	return cmd
}

// messageArguments is arguments for those that begin with a message id.
func messageArguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := arguments(check)(cmd, args); err != nil {
			return err
		}
		if args[0] == "" {
			return usagef("the message id is empty")
		}
		return nil
	}
}
