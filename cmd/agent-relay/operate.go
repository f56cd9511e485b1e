package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

func (a *app) requeueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requeue ID",
		Short: "Have a message delivered again",
		Long: `Queues a message again, at the end of its recipient's inbox and with its attempts
counted anew, whatever became of it. One whose body was erased cannot be.` + controlHelp,
		Example: "  agent-relay requeue job/17",
		Args:    messageArguments(cobra.ExactArgs(1)),
	}
	a.overruling(cmd, (*client.Control).Requeue, "is queued again")
	return cmd
}

func (a *app) cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a message as failed",
		Long: `Ends a message: it is delivered no more, and counts as failed with the error
"cancelled". Its sender gets the receipt.` + controlHelp,
		Example: "  agent-relay cancel job/17",
		Args:    messageArguments(cobra.ExactArgs(1)),
	}
	a.overruling(cmd, (*client.Control).Cancel, "is cancelled")
	return cmd
}

// overruling makes cmd one that does something to a message.
func (a *app) overruling(cmd *cobra.Command, do func(*client.Control, context.Context, string) error, done string) {
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		if err := do(c, ctx, args[0]); err != nil {
			return err
		}
		return d.result(map[string]string{"id": args[0]}, "%s %s", args[0], done)
	})
}

func (a *app) reloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the broker read its config again",
		Long: `The broker reads the config that it was started with again, as it does on SIGHUP.
agents, require_agent_keys, require_single_use, heartbeat and lockout change
while it runs; what else has changed is named, and counts once it is started
again. An invalid config is refused, and the old one stays.` + controlHelp,
		Example: "  agent-relay reload",
		Args:    arguments(cobra.NoArgs),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, _ []string, c *client.Control, d *display) error {
		restart, err := c.Reload(ctx)
		if err != nil {
			return err
		}
		if len(restart) > 0 && !d.json {
			a.note("start the broker again for what has changed besides: %s", strings.Join(restart, ", "))
		}
		return d.result(map[string][]string{"needs_restart": append([]string{}, restart...)}, "the config is reloaded")
	})
	return cmd
}

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show how the broker stands",
		Long: `Prints how many agents and messages the broker has, and how large its database
is. Counts may be a few seconds old. With --watch it does so again and again,
until interrupted.` + controlHelp,
		Example: `  agent-relay stats
  agent-relay stats --watch`,
		Args: arguments(cobra.NoArgs),
	}
	flags := addControlFlags(cmd)
	var watch bool
	var every time.Duration
	cmd.Flags().BoolVar(&watch, "watch", false, "go on until interrupted")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often, with --watch")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if every < 100*time.Millisecond {
			return usagef("--every must be at least 100ms")
		}
		return nil
	}
	cmd.RunE = a.live(flags, func(ctx context.Context, _ []string, c *client.Control, d *display) error {
		if !watch {
			return d.stats(ctx, c)
		}
		return d.watchStats(ctx, c, every)
	})
	return cmd
}

// clearScreen is what begins a new picture on a terminal (ECMA-48, CUP and ED).
const clearScreen = "\x1b[H\x1b[2J"

func (d *display) watchStats(ctx context.Context, c *client.Control, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if d.width > 0 && !d.json {
			_, _ = d.out.WriteString(clearScreen) // flush tells the error
		}
		if err := d.stats(ctx, c); err != nil {
			return err
		}
		if err := d.flush(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stats shows how a broker stands at the moment.
func (d *display) stats(ctx context.Context, c *client.Control) error {
	s, err := c.Stats(ctx)
	if err != nil {
		return err
	}
	if d.json {
		return d.document(newStatsDocument(&s))
	}
	size := func(n int64) string {
		if d.width > 0 {
			return humanize.IBytes(uint64(max(0, n)))
		}
		return strconv.FormatInt(n, 10)
	}
	oldest := "none"
	if !s.OldestQueued.IsZero() {
		oldest = d.when(s.OldestQueued)
	}
	d.facts([][]string{
		{"version", s.DaemonVersion},
		{"started", d.when(s.Started)},
		{"agents", strconv.Itoa(s.Agents)},
		{"online", strconv.Itoa(s.AgentsOnline)},
		{"queued", strconv.Itoa(s.Queued)},
		{"leased", strconv.Itoa(s.Leased)},
		{"oldest queued", oldest},
		{"database", size(s.DatabaseBytes)},
		{"log", size(s.LogBytes)},
		{"control clients", strconv.Itoa(s.ControlClients)},
		{"subscribers", strconv.Itoa(s.ControlSubscribers)},
		{"unreadable lines", strconv.FormatUint(s.ControlUnreadableLines, 10)},
		{"lost events", strconv.FormatUint(s.ControlLostEvents, 10)},
	})
	return nil
}

// statsDocument is how a broker stands as the control socket shows it.
type statsDocument struct {
	client.ControlStats
	Started      *string `json:"started"`
	OldestQueued *string `json:"oldest_queued"`
}

func newStatsDocument(s *client.ControlStats) statsDocument {
	return statsDocument{*s, orNull(timestamp(s.Started)), orNull(timestamp(s.OldestQueued))}
}
