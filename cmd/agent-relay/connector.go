package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) connectorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connector",
		Short: "See and try connectors to chat platforms",
		Long: `A connector is a program that bridges a chat platform. The broker dials those
that connectors in its config names, and each is a peer of that name: what agents
send to it comes out in a chat, and what people write there goes to an agent.`,
		Example: `  agent-relay connector list
  agent-relay connector echo --listen 127.0.0.1:8900`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("say what to do: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	cmd.AddCommand(a.connectorListCommand(), a.connectorTestCommand(), a.connectorIdleCommand(), a.connectorEchoCommand())
	return cmd
}
