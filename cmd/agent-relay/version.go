package main

import (
	"errors"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is set by release builds (-ldflags "-X main.buildVersion=…").
var buildVersion string

// version is this build's: the release's, else the module's as the Go tool
// recorded it, else "devel".
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the Go version and the platform",
		Example: "  agent-relay version",
		Args:    arguments(cobra.NoArgs),
	}
	addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := a.display(cmd, false)
		return errors.Join(d.result(struct {
			Version  string `json:"version"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{a.version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH},
			"agent-relay %s %s %s/%s", a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH), d.flush())
	}
	return cmd
}
