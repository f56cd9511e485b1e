package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// defaultRequestTimeout is how long a person waits before wondering.
const defaultRequestTimeout = time.Minute

func (a *app) requestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request TO [TEXT]",
		Short: "Ask another agent, and print its reply",
		Long: `Sends a message of kind request, waits for the reply, acknowledges it, and prints
its body: the text of one that is {"text": …}, any other as JSON. --json prints
the whole reply. What is sent is given as for "agent-relay send".

A reply that does not come within the time limit is exit status 75; sent again
under the same --id, the request is not asked twice, and its reply is found. If
the recipient fails the request or it expires, the exit status is 1.` + connectionHelp,
		Example: `  answer=$(agent-relay request --agent alpha calc "6 * 7" --timeout 30s)`,
		Args:    arguments(cobra.RangeArgs(1, 2)),
	}
	flags := addClientFlags(cmd)
	var m client.Outgoing
	body := addBodyFlag(cmd)
	timeout := defaultRequestTimeout
	cmd.Flags().StringVar(&m.ID, "id", "", "the request's id (default a new one)")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait this long for the reply")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if timeout <= 0 {
			return usagef("--timeout must be more than 0s")
		}
		m.To = args[0]
		m.Body, err = a.body(cmd.Context(), args[1:], *body, cmd.Flags().Changed(bodyFlag))
		return err
	}
	ask := a.calling(flags, false, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		return a.request(ctx, c, d, &m)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		outer := cmd.Context()
		limited, cancel := context.WithTimeout(outer, timeout)
		defer cancel()
		cmd.SetContext(limited)
		err := ask(cmd, args)
		if !errors.Is(err, context.DeadlineExceeded) || outer.Err() != nil {
			return err
		}
		if m.ID == "" {
			return &exitError{exitTryAgain, fmt.Errorf("the broker did not answer within %v", timeout)}
		}
		return &exitError{exitTryAgain, fmt.Errorf("no reply within %v; to go on waiting for it, add --id %s", timeout, m.ID)}
	}
	return cmd
}

func (a *app) request(ctx context.Context, c *client.Client, d *display, m *client.Outgoing) (err error) {
	if m.ID == "" {
		if m.ID, err = client.NewID(); err != nil {
			return err
		}
	}
	reply, err := c.Ask(ctx, *m)
	if err != nil {
		return maybeSent(err, m.ID)
	}
	// Until it is written out, the reply stays where it is.
	d.body(&reply)
	if err := d.flush(); err != nil {
		return err
	}
	_, err = c.Ack(ctx, reply.ID, client.AckOptions{})
	return err
}

// body shows what a message says, and nothing else.
func (d *display) body(m *agentrelay.Message) {
	if d.json {
		d.jsonLine(m)
		return
	}
	text := bodyText(m)
	if d.width > 0 {
		text = printable(text)
	}
	_, _ = d.out.WriteString(text + "\n") // flush tells the error
}
