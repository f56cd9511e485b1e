package main

import (
	"context"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) peersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "List the agents that the broker knows",
		Long: `Prints the registered agents, a line each: name, online or offline, and when it
was last seen.` + connectionHelp,
		Example: `  agent-relay peers --agent alpha`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		peers, err := c.Peers(ctx)
		if err != nil {
			return err
		}
		if d.json {
			return d.document(map[string]any{"peers": peerDocuments(peers)})
		}
		rows := make([][]string, len(peers))
		for i, p := range peers {
			state := "offline"
			if p.Online {
				state = "online"
			}
			rows[i] = []string{p.Agent, state, d.when(p.LastSeen)}
		}
		return d.table([]string{"AGENT", "STATE", "LAST SEEN"}, rows)
	})
	return cmd
}

// peerDocument is a peer as the protocol shows it (PROTOCOL.md, "Agents").
type peerDocument struct {
	Agent    string `json:"agent,omitempty"`
	Online   bool   `json:"online"`
	LastSeen int64  `json:"lastSeen"`
}

func newPeerDocument(p agentrelay.Peer) peerDocument {
	document := peerDocument{Agent: p.Agent, Online: p.Online}
	if !p.LastSeen.IsZero() {
		document.LastSeen = p.LastSeen.Unix()
	}
	return document
}

func peerDocuments(peers []agentrelay.Peer) []peerDocument {
	documents := make([]peerDocument, len(peers))
	for i, p := range peers {
		documents[i] = newPeerDocument(p)
	}
	return documents
}
