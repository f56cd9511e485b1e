package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// app is what the commands need of the process they run in.
type app struct {
	// env looks a variable up; one that is not set is empty.
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	// version is this build's, as version and GET / show it.
	version string
}

// newRoot puts the command tree together. Commands return their errors; report
// prints them and knows the exit status.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "agent-relay",
		Short: "A message relay for AI agents",
		Long: `agent-relay passes messages between agents, scripts and cron jobs: a broker
on this machine, its setup, and a client for the command line.

Exit status: 0 done, 64 wrong usage, 65 the broker cannot use what was sent,
69 no broker there, or something else that answers, 75 try again later,
77 refused, 1 any other failure.`,
		Example: `  agent-relay setup start                      # in one terminal
  agent-relay recv --agent beta --wait 30s     # in a second one
  agent-relay send --agent alpha beta "hello"  # in a third one`,
		Args: a.rootArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			_ = cmd.Help()
			return &exitError{status: exitUsage}
		},
		Version:                    a.version,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("agent-relay {{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(
		a.serveCommand(),
		a.setupCommand(),
		a.registerCommand(),
		a.sendCommand(),
		a.recvCommand(),
		a.watchCommand(),
		a.ackCommand(),
		a.pullCommand(),
		a.settleCommand(),
		a.renewCommand(),
		a.requestCommand(),
		a.statusCommand(),
		a.recentCommand(),
		a.queryCommand(),
		a.peersCommand(),
		a.hooksCommand(),
		a.connectorCommand(),
		a.agentCommand(),
		a.eventsCommand(),
		a.statsCommand(),
		a.requeueCommand(),
		a.cancelCommand(),
		a.reloadCommand(),
		a.storeCommand(),
		a.versionCommand(),
	)
	adoptCommands(root)
	completeFiles(root)
	return root
}

// adoptCommands has those that cobra adds refuse what they cannot use.
func adoptCommands(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.RunE = func(*cobra.Command, []string) error {
				return usagef("name the shell: bash, zsh, fish or powershell")
			}
			cmd.Args = cobra.ArbitraryArgs
			for _, shell := range cmd.Commands() {
				shell.Args = arguments(cobra.NoArgs)
			}
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usagef("there is no command %q; see `agent-relay --help`", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}

// completeFiles completes names of files for --config, and nowhere else but
// where a command says so itself.
func completeFiles(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	if cmd.Flags().Lookup("config") != nil {
		_ = cmd.RegisterFlagCompletionFunc("config", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	}
	for _, sub := range cmd.Commands() {
		completeFiles(sub)
	}
}

func (a *app) rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see `agent-relay --help`"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("there is no command %q; %s", args[0], hint)
}

// arguments wraps a check of cobra's on positional arguments, so that what it
// refuses counts as wrong usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// isTerminal reports whether r is a character device: a terminal, or nothing
// at all as under cron.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// note writes one line for a person to stderr.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, format+"\n", args...)
}
