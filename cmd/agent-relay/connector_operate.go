package main

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

func (a *app) connectorListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the broker's connectors, and how they stand",
		Long: `Prints a line for each connector: its name, how it stands and since when, its
platforms, how many messages wait to go out and how many events are not stored
yet, and what went wrong last.` + controlHelp,
		Example: "  agent-relay connector list",
		Args:    arguments(cobra.NoArgs),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, _ []string, c *client.Control, d *display) error {
		list, err := c.Connectors(ctx)
		if err != nil {
			return err
		}
		if d.json {
			return d.document(map[string]any{"connectors": append([]client.ConnectorInfo{}, list...)})
		}
		if len(list) == 0 {
			a.note("the broker has no connectors; name them in its config")
			return nil
		}
		return showConnectors(d, list...)
	})
	return cmd
}

func showConnectors(d *display, list ...client.ConnectorInfo) error {
	rows := make([][]string, len(list))
	for i, c := range list {
		problem := c.Stalled
		if problem == "" {
			problem = c.Error
		}
		rows[i] = []string{
			c.Connector, c.State, d.when(c.Since), platforms(c), strconv.Itoa(c.Queued), strconv.Itoa(c.Backlog), problem,
		}
	}
	return d.table([]string{"CONNECTOR", "STATE", "SINCE", "PLATFORMS", "QUEUED", "BACKLOG", "LAST ERROR"}, rows)
}

// platforms names those that a connector described.
func platforms(c client.ConnectorInfo) string {
	var names []string
	for _, raw := range c.Descriptors {
		var d struct{ Platform string }
		if json.Unmarshal(raw, &d) == nil {
			names = append(names, d.Platform)
		}
	}
	return strings.Join(names, ",")
}

func (a *app) connectorTestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Wait until a connector is online, and show what it can",
		Long: `Waits until a connector is online, for 30 seconds at most, and prints what it says
of its platforms. One that was left with "connector idle", or that has refused
the broker, is dialled again.` + controlHelp,
		Example: "  agent-relay connector test telegram",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	a.onConnector(cmd, (*client.Control).TestConnector, true)
	return cmd
}

func (a *app) connectorIdleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "idle NAME",
		Short: "Take leave of a connector",
		Long: `Ends the connection to a connector once it agrees. Messages to it wait, and it
keeps what people write, until "connector test" or the broker's next start.` + controlHelp,
		Example: "  agent-relay connector idle telegram",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	a.onConnector(cmd, (*client.Control).IdleConnector, false)
	return cmd
}

// onConnector makes cmd one that does something with a connector.
func (a *app) onConnector(cmd *cobra.Command, do func(*client.Control, context.Context, string) (client.ConnectorInfo, error), describe bool) {
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		info, err := do(c, ctx, args[0])
		if err != nil {
			return err
		}
		if d.json {
			return d.document(info)
		}
		if err := showConnectors(d, info); err != nil || !describe {
			return err
		}
		for _, raw := range info.Descriptors {
			d.printf("%s\n", raw)
		}
		return nil
	})
}
