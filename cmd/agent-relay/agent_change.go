package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/client"
)

// changeFlags say what is to be set for an agent, and what removed.
type changeFlags struct {
	description    string
	noDescription  bool
	allow          []string
	nobody, anyone bool
	maxQueued      int64
	noMaxQueued    bool
}

// add adds the flags that set something; removing says that there is something
// to remove as well.
func (f *changeFlags) add(cmd *cobra.Command, removing bool) {
	flags := cmd.Flags()
	flags.StringVar(&f.description, "description", "", "what the agent is for (`text`)")
	flags.StringSliceVar(&f.allow, "allow", nil, "let it send to these `agents` only, separated by commas")
	flags.BoolVar(&f.nobody, "allow-nobody", false, "let it send to nobody")
	flags.Int64Var(&f.maxQueued, "max-queued", 0, "how many messages may be queued for it")
	if !removing {
		return
	}
	flags.BoolVar(&f.noDescription, "no-description", false, "remove the description")
	flags.BoolVar(&f.anyone, "allow-anyone", false, "let it send to anyone")
	flags.BoolVar(&f.noMaxQueued, "no-max-queued", false, "leave to the broker how many messages may be queued for it")
}

// change is what the flags ask for.
func (f *changeFlags) change(cmd *cobra.Command) (client.AgentChange, error) {
	var change client.AgentChange
	given := cmd.Flags().Changed
	for _, exclusive := range [][]string{
		{"description", "no-description"}, {"allow", "allow-nobody", "allow-anyone"}, {"max-queued", "no-max-queued"},
	} {
		var both []string
		for _, name := range exclusive {
			if given(name) {
				both = append(both, "--"+name)
			}
		}
		if len(both) > 1 {
			return change, usagef("give only one of %s", strings.Join(both, " and "))
		}
	}
	switch {
	case f.noDescription:
		change.Description = client.Remove[string]()
	case given("description"):
		change.Description = client.Set(f.description)
	}
	switch {
	case f.anyone:
		change.AllowedTargets = client.Remove[[]string]()
	case f.nobody:
		change.AllowedTargets = client.Set([]string{})
	case given("allow"):
		change.AllowedTargets = client.Set(f.allow)
	}
	switch {
	case f.noMaxQueued:
		change.MaxQueued = client.Remove[int64]()
	case given("max-queued"):
		if f.maxQueued < 1 {
			return change, usagef("--max-queued must be at least 1")
		}
		change.MaxQueued = client.Set(f.maxQueued)
	}
	return change, nil
}

func (a *app) agentUpdateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change what is set for an agent",
		Long: `Changes what the flags say and nothing else, and prints the agent as it is then.
What the config says of an agent (agents) is changed there.` + controlHelp,
		Example: `  agent-relay agent update worker --allow planner,ops --max-queued 1000
  agent-relay agent update worker --no-description --allow-anyone`,
		Args: agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	var changes changeFlags
	changes.add(cmd, true)
	var change client.AgentChange
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if change, err = changes.change(cmd); err == nil && change == (client.AgentChange{}) {
			err = usagef("say what to change; see `%s --help`", cmd.CommandPath())
		}
		return err
	}
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		agent, err := c.UpdateAgent(ctx, args[0], change)
		if err != nil {
			return aboutAgent(args[0], err)
		}
		return d.agent(&agent)
	})
	return cmd
}

func (a *app) agentRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget an agent, its keys and what was set for it",
		Long: `Its keys end at once, and whoever knows the shared secret may use its name
again. Messages that wait for it stay, for whoever does.` + controlHelp,
		Example: "  agent-relay agent remove worker",
		Args:    agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		if err := c.RemoveAgent(ctx, args[0]); err != nil {
			return aboutAgent(args[0], err)
		}
		return d.result(map[string]string{"agent": args[0]}, "%s is removed", args[0])
	})
	return cmd
}

func (a *app) agentUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock NAME",
		Short: "End the lock of an agent that had too many bad signatures",
		Long: `Ends the locks of an agent at all addresses, and forgets its bad signatures.` +
			controlHelp,
		Example: "  agent-relay agent unlock worker",
		Args:    agentArguments(cobra.ExactArgs(1)),
	}
	flags := addControlFlags(cmd)
	cmd.RunE = a.controlling(flags, func(ctx context.Context, args []string, c *client.Control, d *display) error {
		if err := c.UnlockAgent(ctx, args[0]); err != nil {
			return aboutAgent(args[0], err)
		}
		return d.result(map[string]string{"agent": args[0]}, "%s is not locked", args[0])
	})
	return cmd
}
