package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) registerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Make an agent known to the broker",
		Long: `Makes an agent known to the broker, so that others can send to it. Repeating
it is harmless; recv and watch do it, too.` + connectionHelp,
		Example: "  agent-relay register --agent alpha",
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd.Context(), flags)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Register(cmd.Context()); err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "registered %s at %s\n", c.Agent(), c.URL())
		return err
	}
	return cmd
}
