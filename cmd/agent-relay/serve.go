package main

import (
	"context"

	"github.com/spf13/cobra"
)

// serveFlags are what serve and setup start take.
type serveFlags struct {
	config string
	log    logConfig
}

func (f *serveFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", configFlagHelp)
	f.log.addFlags(cmd)
}

func (a *app) serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: `Run the broker until it is interrupted. It logs to standard error and prints
nothing. On SIGTERM or SIGINT it answers what is under way, within 10 seconds,
and exits 0; a second signal ends it at once.`,
		Example: "  agent-relay serve --config /etc/agent-relay/config.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), flags)
		},
	}
	flags.add(cmd)
	return cmd
}

// serve runs the broker until ctx ends. Nothing of it is left when it returns
// nil.
func (a *app) serve(ctx context.Context, f serveFlags) error {
	if err := f.log.check(); err != nil {
		return err
	}
	path, err := configPath(f.config, a.env)
	if err != nil {
		return err
	}
	c, err := loadConfig(path, a.env)
	if err != nil {
		return err
	}
	c.Log = f.log
	p, err := a.openProcess(ctx, c, newLogger(a.stderr, c.Log))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // interrupted before it began, which is a clean end too
	case err != nil:
		return err
	}
	return p.run(ctx)
}
