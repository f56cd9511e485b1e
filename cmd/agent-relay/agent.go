package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "List and change agents, and give them keys of their own",
		Long: `Drives the broker on this machine. An agent that was added has keys of its own,
and the shared secret is no good for it until it is removed. The broker need
not be started again.`,
		Example: `  agent-relay agent add worker --credentials
  agent-relay agent list
  agent-relay agent rotate worker --credentials`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("say what to do: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	cmd.AddCommand(
		a.agentAddCommand(), a.agentListCommand(), a.agentShowCommand(), a.agentUpdateCommand(),
		a.agentRotateCommand(), a.agentRevokeCommand(), a.agentRemoveCommand(), a.agentUnlockCommand(),
	)
	return cmd
}

// agentArguments is for commands whose first argument is an agent's name.
func agentArguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := arguments(check)(cmd, args); err != nil {
			return err
		}
		if !agentrelay.ValidName(args[0]) {
			return usagef("%q is no agent name: use 1 to %d of A-Z a-z 0-9 _ . -", args[0], agentrelay.MaxNameLength)
		}
		return nil
	}
}

func (a *app) agentListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the agents",
		Long: `Prints the agents that are registered or named in the config, a line each: name,
online or offline, when it was last seen, how many messages are queued and
leased, how many keys it has, to whom it may send, and its description.` + controlHelp,
		Example: "  agent-relay agent list",
		Args:    arguments(cobra.NoArgs),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, _ []string, c *client.Control, d *display) error {
		agents, err := c.Agents(ctx)
		if err != nil {
			return err
		}
		if d.json {
			documents := make([]agentDocument, len(agents))
			for i := range agents {
				documents[i] = newAgentDocument(&agents[i])
			}
			return d.document(map[string]any{"agents": documents})
		}
		rows := make([][]string, len(agents))
		for i := range agents {
			g := &agents[i]
			rows[i] = []string{
				g.Agent, agentState(g), d.when(g.LastSeen), strconv.Itoa(g.Queued), strconv.Itoa(g.Leased),
				strconv.Itoa(len(g.Keys)), sendsTo(g), g.Description,
			}
		}
		return d.table([]string{"AGENT", "STATE", "LAST SEEN", "QUEUED", "LEASED", "KEYS", "SENDS TO", "DESCRIPTION"}, rows)
	})
	return cmd
}

func (a *app) agentShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all about an agent",
		Long: `Prints what the broker knows of an agent, and its keys, though not their
secrets.` + controlHelp,
		Example: "  agent-relay agent show worker",
		Args:    agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		agent, err := c.Agent(ctx, args[0])
		if err != nil {
			return aboutAgent(args[0], err)
		}
		return d.agent(&agent)
	})
	return cmd
}

// agent shows one agent.
func (d *display) agent(g *client.AgentInfo) error {
	if d.json {
		return d.document(newAgentDocument(g))
	}
	limit := "that of the broker"
	if g.MaxQueued != 0 {
		limit = strconv.FormatInt(g.MaxQueued, 10)
	}
	locked := "no"
	if !g.LockedUntil.IsZero() {
		locked = "until " + d.when(g.LockedUntil)
	}
	facts := [][]string{
		{"agent", g.Agent},
		{"description", g.Description},
		{"state", agentState(g)},
		{"last seen", d.when(g.LastSeen)},
		{"sends to", sendsTo(g)},
		{"queued", strconv.Itoa(g.Queued)},
		{"leased", strconv.Itoa(g.Leased)},
		{"most queued", limit},
		{"locked", locked},
	}
	for _, k := range g.Keys {
		ends := "never ends"
		if !k.NotAfter.IsZero() {
			ends = "ends " + d.when(k.NotAfter)
		}
		facts = append(facts, []string{"key " + k.ID, fmt.Sprintf("made %s, %s, last used %s", d.when(k.Created), ends, d.when(k.LastUsed))})
	}
	if len(g.Keys) == 0 {
		facts = append(facts, []string{"keys", "none"})
	}
	d.facts(facts)
	return nil
}

func agentState(g *client.AgentInfo) string {
	switch {
	case !g.LockedUntil.IsZero():
		return "locked"
	case !g.Registered:
		return "not registered"
	case g.Online:
		return "online"
	}
	return "offline"
}

func sendsTo(g *client.AgentInfo) string {
	switch {
	case g.AllowedTargets == nil:
		return "anyone"
	case len(g.AllowedTargets) == 0:
		return "nobody"
	}
	return strings.Join(g.AllowedTargets, ", ")
}

// agentDocument is an agent as the control socket shows it (PROTOCOL.md, "The
// control socket").
type agentDocument struct {
	Agent          string        `json:"agent"`
	Description    *string       `json:"description"`
	AllowedTargets []string      `json:"allowed_targets"`
	MaxQueued      *int64        `json:"max_queued"`
	Registered     bool          `json:"registered"`
	Online         bool          `json:"online"`
	LastSeen       *string       `json:"last_seen"`
	Queued         int           `json:"queued"`
	Leased         int           `json:"leased"`
	Keys           []keyDocument `json:"keys"`
	LockedUntil    *string       `json:"locked_until"`
}

type keyDocument struct {
	ID       string  `json:"key_id"`
	Created  *string `json:"created"`
	NotAfter *string `json:"not_after"`
	LastUsed *string `json:"last_used"`
}

func newAgentDocument(g *client.AgentInfo) agentDocument {
	document := agentDocument{
		Agent: g.Agent, Description: orNull(g.Description), AllowedTargets: g.AllowedTargets, MaxQueued: orNull(g.MaxQueued),
		Registered: g.Registered, Online: g.Online, LastSeen: orNull(timestamp(g.LastSeen)),
		Queued: g.Queued, Leased: g.Leased, Keys: []keyDocument{}, LockedUntil: orNull(timestamp(g.LockedUntil)),
	}
	for _, k := range g.Keys {
		document.Keys = append(document.Keys, keyDocument{
			k.ID, orNull(timestamp(k.Created)), orNull(timestamp(k.NotAfter)), orNull(timestamp(k.LastUsed)),
		})
	}
	return document
}

// orNull is a value that JSON shows as null if it is zero.
func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
