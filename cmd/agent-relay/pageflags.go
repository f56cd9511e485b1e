package main

import (
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
)

// pageFlags are what bounds a list of messages.
type pageFlags struct {
	limit, maxBytes int
	wait            time.Duration
}

func addPageFlags(cmd *cobra.Command) *pageFlags {
	f := &pageFlags{}
	cmd.Flags().IntVar(&f.limit, "limit", agentrelay.DefaultLimit, "print at most this many messages, up to 200")
	cmd.Flags().IntVar(&f.maxBytes, "max-bytes", agentrelay.MaxPageBytes, "print at most this many bytes of bodies, but one message at least")
	cmd.PreRunE = f.check
	return f
}

func (f *pageFlags) addWait(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "wait this long for a message, up to 60s")
}

func (f *pageFlags) check(cmd *cobra.Command, _ []string) error {
	switch {
	case f.limit < 1 || f.limit > agentrelay.MaxLimit:
		return usagef("--limit must be between 1 and %d", agentrelay.MaxLimit)
	case f.maxBytes < 1 || f.maxBytes > agentrelay.MaxPageBytes:
		return usagef("--max-bytes must be between 1 and %d", agentrelay.MaxPageBytes)
	case f.wait < 0 || f.wait > agentrelay.MaxWaitSeconds*time.Second:
		return usagef("--wait must be between 0s and %ds; to wait longer, use `agent-relay watch`", agentrelay.MaxWaitSeconds)
	}
	return nil
}
