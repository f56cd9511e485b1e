package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/setup"
)

func (a *app) setupSystemdCommand() *cobra.Command {
	var config, runAs string
	cmd := &cobra.Command{
		Use:   "systemd",
		Short: "Print a systemd unit that runs the broker with few rights",
		Long: `Print a unit for systemd that runs the broker with as few rights as it and its
hooks need. The search path of this shell is written into it, for the hooks.`,
		Example: "  agent-relay setup systemd --config /etc/agent-relay/config.yaml | sudo tee /etc/systemd/system/agent-relay.service",
		Args:    arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			unit, err := a.unit(config, runAs)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, unit)
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", "", configFlagHelp)
	cmd.Flags().StringVar(&runAs, "user", "", "the user who runs the broker and owns its config (default: you)")
	return cmd
}

func (a *app) unit(config, runAs string) (string, error) {
	path, err := configPath(config, a.env)
	if err != nil {
		return "", err
	}
	c, err := loadConfig(path, a.env)
	if err != nil {
		return "", err
	}
	if runAs == "" {
		current, err := user.Current()
		if err != nil {
			return "", fmt.Errorf("find out who you are: %w; name the user with --user", err)
		}
		runAs = current.Username
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	o := setup.UnitOptions{Executable: self, Config: path, User: runAs, Path: a.env("PATH")}
	if c.lines["data_dir"] != 0 && c.Storage == storageSQLite {
		o.DataDir = c.DataDir
	}
	return setup.Unit(o)
}
