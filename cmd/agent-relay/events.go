package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/broker/socket"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happens in the broker as it happens, until interrupted",
		Long: `Prints an event a line: messages accepted, delivered, acknowledged and so on, with
their ids and never a body; agents that come and go; refused signatures; hooks
that failed. An interrupt ends it with exit status 0, the broker's end with 69.

Events are printed for reading on a terminal, and elsewhere as JSON, an object a
line; --json and --json=false choose. What is read too slowly is lost, and the
event "lagged" says how much.` + controlHelp,
		Example: `  agent-relay events
  agent-relay events --only message_failed,message_expired | while read -r event; do …; done`,
		Args: arguments(cobra.NoArgs),
	}
	flags := addControlFlags(cmd)
	var only []string
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these `events`, separated by commas")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(socket.EventNames(), cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, name := range only {
			if !slices.Contains(socket.EventNames(), name) {
				return usagef("there is no event %q; use %s", name, listed(socket.EventNames()))
			}
		}
		return nil
	}
	cmd.RunE = a.live(flags, func(ctx context.Context, _ []string, c *client.Control, d *display) error {
		if !cmd.Flags().Changed("json") {
			d.json = d.width == 0
		}
		for e, err := range c.Events(ctx, only...) {
			if err != nil {
				return err
			}
			d.event(&e)
			if err := d.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// event shows one event.
func (d *display) event(e *client.Event) {
	if d.json {
		line := []byte(e.JSON)
		if d.width > 0 {
			line = escapeControls(line)
		}
		_, _ = d.out.Write(append(line, '\n')) // flush tells the error
		return
	}
	at := e.TS.UTC().Format(time.RFC3339Nano)
	if d.width > 0 {
		at = e.TS.Local().Format(time.TimeOnly)
	}
	s := style("")
	switch e.Name {
	case "message_failed", "message_expired", "agent_locked", "auth_failed", "hook_failed", "lagged":
		s = red
	}
	d.columns(cell{at, dim}, cell{pad(oneLine(e.Name), len("message_delivered")), s}, cell{about(e), ""})
}

// about says what an event is about.
func about(e *client.Event) string {
	switch {
	case e.Missed > 0:
		return strconv.FormatUint(e.Missed, 10) + " events were lost here"
	case e.Hook != "":
		return e.Hook + " " + e.Script
	case e.ID != "":
		return e.From + " → " + e.To + "  " + e.ID
	}
	return strings.TrimSpace(e.Agent + "  " + e.Reason)
}
