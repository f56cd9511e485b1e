package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/setup"
)

func (a *app) setupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make a config, start the relay, check an installation",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			_ = cmd.Help()
			return &exitError{status: exitUsage}
		},
	}
	cmd.AddCommand(a.setupInitCommand(), a.setupStartCommand(), a.setupSelfcheckCommand(), a.setupSystemdCommand())
	return cmd
}

const configFlagHelp = "the config file (default $AGENT_RELAY_CONFIG, else the user's own)"

func (a *app) setupInitCommand() *cobra.Command {
	var config string
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a config with a new secret",
		Long: `Make a config with a new random secret, readable by you alone. A config that
is there already is kept.`,
		Example: "  agent-relay setup init",
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			path, err := a.initConfig(config, force)
			if err != nil {
				return err
			}
			return a.printNext(path, true)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	cmd.Flags().BoolVar(&force, "force", false, "replace a config that is there, and its secret")
	return cmd
}

func (a *app) setupStartCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Make a config if there is none, then serve",
		Long: `Make a config if there is none, show what to run in other terminals, and
serve until interrupted.`,
		Example: "  agent-relay setup start",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.log.check(); err != nil {
				return err
			}
			path, err := a.initConfig(flags.config, false)
			if err != nil {
				return err
			}
			if err := a.printNext(path, false); err != nil {
				return err
			}
			return a.serve(cmd.Context(), flags)
		},
	}
	flags.add(cmd)
	return cmd
}

// initConfig makes the config unless there is one, and says which.
func (a *app) initConfig(flag string, force bool) (path string, err error) {
	if path, err = configPath(flag, a.env); err != nil {
		return "", err
	}
	created, err := setup.Init(setup.InitOptions{Path: path, Force: force})
	if err != nil {
		return "", err
	}
	what := "The config is"
	if created {
		what = "Made a config with a new secret:"
	}
	_, err = fmt.Fprintf(a.stdout, "%s %s\n", what, path)
	return path, err
}

// printNext shows the commands to run next, in the form in which this program
// was called.
func (a *app) printNext(path string, start bool) error {
	command, config := commandName(), a.configFlag(path)
	var b strings.Builder
	others := "In two other terminals, receive a message and send one:"
	if start {
		fmt.Fprintf(&b, "\nStart the relay:\n  %s serve%s\n", command, config)
	}
	fmt.Fprintf(&b, "\n%s\n  %s recv --agent beta --wait 60s%s\n  %s send --agent alpha beta \"hello\"%s\n",
		others, command, config, command, config)
	_, err := fmt.Fprintln(a.stdout, strings.TrimRight(b.String(), "\n"))
	return err
}

// configFlag is the flag that leads to the config at path from another
// terminal; empty if none is needed.
func (a *app) configFlag(path string) string {
	home, err := configHome(a.env)
	if err == nil && path == filepath.Join(home, "agent-relay", "config.yaml") {
		return ""
	}
	return " --config " + setup.ShellQuote(path)
}

// commandName is how to call this program again from the same directory.
func commandName() string {
	self, err := os.Executable()
	if err != nil {
		return "agent-relay"
	}
	if found, err := exec.LookPath("agent-relay"); err == nil && sameFile(found, self) {
		return "agent-relay"
	}
	// `go run` puts what it builds into a cache or a directory of this name.
	if strings.Contains(self, "go-build") {
		return "go run ./cmd/agent-relay"
	}
	return setup.ShellQuote(self)
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func (a *app) setupSelfcheckCommand() *cobra.Command {
	var config, url string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "selfcheck",
		Short: "Check the installation, from its files to a message there and back",
		Long: `Check the config, the data directory, the broker and a message from one agent
to another and back. Each check is a line, ok or FAIL with what to do. Exits 0
only if all pass.

The message goes between two agents called selfcheck-a and selfcheck-b. They
stay in the broker's list of peers; nothing stays queued for them.`,
		Example: "  agent-relay setup selfcheck --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configPath(config, a.env)
			if err != nil {
				return err
			}
			report := setup.Selfcheck(cmd.Context(), a.selfcheckOptions(path, url))
			if err := a.printReport(report, asJSON); err != nil {
				return err
			}
			if !report.OK {
				return &exitError{status: exitFailure}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	cmd.Flags().StringVar(&url, "url", "", "the broker's address (default that of the config)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (a *app) selfcheckOptions(path, url string) setup.SelfcheckOptions {
	o := setup.SelfcheckOptions{ConfigPath: path, Version: a.version, Command: commandName(), Env: a.env}
	c, err := loadConfig(path, a.env)
	if err != nil {
		o.ConfigErr = err
		return o
	}
	o.Secret, o.RequireAgentKeys = string(c.Secret), c.RequireAgentKeys
	o.CAFile = firstOf(a.env("AGENT_RELAY_CA_FILE"), c.CAFile)
	if o.URL = url; o.URL == "" {
		o.URL = c.baseURL()
	}
	if c.Storage == storageSQLite {
		o.DataDir = c.DataDir
	}
	return o
}

func (a *app) printReport(report setup.Report, asJSON bool) error {
	if !asJSON {
		return report.WriteText(a.stdout)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", text)
	return err
}
