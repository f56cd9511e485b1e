package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Take messages for work, under a lease",
		Long: `Takes the oldest messages that wait for the agent and prints them. Each is this
agent's alone for the time of its lease, and carries the lease's id: end it with
"agent-relay settle" when the work is done or failed, or prolong it with
"agent-relay renew". A message whose lease runs out is delivered again.

Having nothing to take is no failure: nothing is printed, and the exit status
is 0.` + jsonHelp + connectionHelp,
		Example: `  agent-relay pull --agent worker --limit 1 --lease 5m --wait 30s`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	page := addPageFlags(cmd)
	page.addWait(cmd)
	var lease leaseFlag
	lease.add(cmd, "take them for this long")
	cmd.RunE = a.calling(flags, true, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		if err := c.Register(ctx); err != nil {
			return err
		}
		pulled, err := c.Pull(ctx, client.PullOptions{
			Limit: page.limit, MaxBytes: page.maxBytes, Wait: page.wait, Lease: time.Duration(lease),
		})
		d.messages(pulled)
		return err
	})
	return cmd
}

// leaseFlag is the time of a lease, zero for the broker's own.
type leaseFlag time.Duration

func (l *leaseFlag) add(cmd *cobra.Command, usage string) {
	cmd.Flags().Var(l, "lease", usage+", from 1s to 24h (default the broker's)")
}

// Set reads a duration that the protocol allows (PROTOCOL.md, "Leases").
func (l *leaseFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < agentrelay.MinLeaseSeconds*time.Second || d > agentrelay.MaxLeaseSeconds*time.Second {
		return errors.New("a lease lasts from 1s to 24h")
	}
	*l = leaseFlag(d)
	return nil
}

func (l *leaseFlag) String() string {
	if *l == 0 {
		return ""
	}
	return time.Duration(*l).String()
}

// Type names the value in a help text.
func (l *leaseFlag) Type() string { return "duration" }

func (a *app) settleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settle ID LEASE completed|retry",
		Short: "End the lease of a message that was pulled",
		Long: `Ends a lease: completed, and the message is done; retry, and it is delivered
again, until its attempts are spent. Prints where that leaves the message, and
how many attempts failed so far. Repeating it is harmless.

To end a message as failed, for its sender to know, use "agent-relay ack ID
--error TEXT".` + connectionHelp,
		Example: `  agent-relay settle --agent worker job/17 0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e completed`,
		Args:    messageArguments(cobra.ExactArgs(3)),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 2 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{string(agentrelay.OutcomeCompleted), string(agentrelay.OutcomeRetry)}, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := addClientFlags(cmd)
	var s client.Settlement
	cmd.Flags().StringVar(&s.Error, "error", "", "with retry: what went wrong (`text`); it is kept with the message")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		s.ID, s.LeaseID, s.Outcome = args[0], args[1], agentrelay.Outcome(args[2])
		if s.Outcome != agentrelay.OutcomeCompleted && s.Outcome != agentrelay.OutcomeRetry {
			return usagef("a lease ends as completed or retry, not as %q", args[2])
		}
		return nil
	}
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		settled, err := c.Settle(ctx, s)
		if err != nil {
			return err
		}
		return d.result(struct {
			ID       string            `json:"id"`
			Status   agentrelay.Status `json:"status"`
			Attempts int               `json:"attempts"`
		}{s.ID, settled.Status, settled.Attempts}, "%s, failed attempts: %d", settled.Status, settled.Attempts)
	})
	return cmd
}

func (a *app) renewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "renew ID LEASE",
		Short: "Prolong the lease of a message that was pulled",
		Long: `Makes a lease last longer, counted from now, and prints when it is over by the
broker's clock.` + connectionHelp,
		Example: `  agent-relay renew --agent worker job/17 0198c5f0-8c6e-7d3a-9f54-1f0a4c5b6d7e --lease 10m`,
		Args:    messageArguments(cobra.ExactArgs(2)),
	}
	flags := addClientFlags(cmd)
	var lease leaseFlag
	lease.add(cmd, "make it last this long from now")
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, args []string, c *client.Client, d *display) error {
		until, err := c.Renew(ctx, client.Renewal{ID: args[0], LeaseID: args[1], For: time.Duration(lease)})
		if err != nil {
			return err
		}
		return d.result(struct {
			ID         string `json:"id"`
			LeaseUntil int64  `json:"leaseUntil"`
		}{args[0], until.UnixMilli()}, "%s", until.UTC().Format(time.RFC3339))
	})
	return cmd
}
