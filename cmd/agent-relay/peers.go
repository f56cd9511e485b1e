package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) peersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "List the agents that the broker knows",
		Long: `Prints the registered agents, a line each: name, online or offline, and when it
was last seen (UTC).` + connectionHelp,
		Example: `  agent-relay peers --agent alpha`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd.Context(), flags)
		if err != nil {
			return err
		}
		defer c.Close()
		peers, err := c.Peers(cmd.Context())
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
		for _, p := range peers {
			state, seen := "offline", "never"
			if p.Online {
				state = "online"
			}
			if !p.LastSeen.IsZero() {
				seen = p.LastSeen.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Agent, state, seen)
		}
		return w.Flush()
	}
	return cmd
}
