package main

import (
	"bytes"
	"io"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) recvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recv",
		Short: "Print the messages that wait for an agent",
		Long: `Registers the agent and prints the messages that wait for it, oldest first, each
as a JSON object on a line of its own. Bodies are printed as they were sent,
but for line breaks between their values, which become spaces.

Reading takes nothing away: until a message is acknowledged (agent-relay ack) or
expires, the next recv prints it again. To go on after the last message printed
instead, give --since the cursor that recv writes to stderr.

With --wait, recv waits that long for a message if there is none. Having none
is no failure: nothing is printed, and the exit status is 0.` + connectionHelp,
		Example: `  agent-relay recv --agent beta --wait 30s`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	var o client.PollOptions
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "wait this long for a message, up to 60s")
	cmd.Flags().StringVar(&o.Since, "since", "", "print only what comes after this `cursor` or message id")
	cmd.Flags().IntVar(&o.Limit, "limit", agentrelay.DefaultLimit, "print at most this many messages, up to 200")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.Wait < 0 || o.Wait > agentrelay.MaxWaitSeconds*time.Second:
			return usagef("--wait must be between 0s and %ds; to wait longer, use `agent-relay watch`", agentrelay.MaxWaitSeconds)
		case o.Limit < 1 || o.Limit > agentrelay.MaxLimit:
			return usagef("--limit must be between 1 and %d", agentrelay.MaxLimit)
		}
		c, err := a.connect(cmd.Context(), flags)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Register(cmd.Context()); err != nil {
			return err
		}
		page, err := c.Poll(cmd.Context(), o)
		if err != nil {
			return err
		}
		if page.Reset {
			a.noteReset()
		}
		for i := range page.Messages {
			if err := printMessage(a.stdout, &page.Messages[i]); err != nil {
				return err
			}
		}
		if len(page.Messages) > 0 {
			a.note("to go on from here: --since %s", page.Cursor)
		}
		return nil
	}
	return cmd
}

func (a *app) noteReset() {
	a.note("the broker does not know this cursor, or no longer; beginning with the oldest message it keeps")
}

// printMessage writes an envelope as one line. JSON strings hold no raw line
// breaks, so those that are found separate values and may be spaces instead.
func printMessage(w io.Writer, m *agentrelay.Message) error {
	line := m.AppendJSON(nil)
	for _, lineBreak := range []string{"\n", "\r"} {
		line = bytes.ReplaceAll(line, []byte(lineBreak), []byte(" "))
	}
	_, err := w.Write(append(line, '\n'))
	return err
}
