package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// maxInputBytes is the most that is read of stdin: the largest message that a
// broker can be set to take.
const maxInputBytes = maxBodyBytes

func (a *app) sendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send TO [TEXT]",
		Short: "Send a message",
		Long: `Sends a message to the agent TO and prints its id once the broker has it
safely on disk. The body is {"text": TEXT}, or any JSON value given with --body.

Where TEXT is "-" or left out, it is read from stdin, without a newline at its
end. With --body - the JSON is read from there.

Sending the same message again under the same --id is harmless. To answer a
request, give --kind reply and its id with --reply-to.` + connectionHelp,
		Example: `  agent-relay send --agent alpha beta "the build is green"
  agent-relay send --agent alpha beta --body '{"task": 7}' --kind request
  df -h | agent-relay send --agent cron ops`,
		Args: arguments(cobra.RangeArgs(1, 2)),
	}
	flags := addClientFlags(cmd)
	var m client.Outgoing
	body := addBodyFlag(cmd)
	cmd.Flags().BoolVar(&m.Ack, "ack", false, "ask for a receipt when the message is completed through a lease")
	cmd.Flags().StringVar(&m.ID, "id", "", "the message's id (default a new one)")
	choice(cmd, (*string)(&m.Kind), "kind", "what it is for (default message)", kinds)
	cmd.Flags().StringVar(&m.ReplyTo, "reply-to", "", "the `id` of the message this one answers; a reply answers its request")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		m.To = args[0]
		if m.Kind == agentrelay.KindReply {
			m.ParentID = m.ReplyTo
		}
		m.Body, err = a.body(cmd.Context(), args[1:], *body, cmd.Flags().Changed(bodyFlag))
		return err
	}
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		return a.send(ctx, c, d, m)
	})
	return cmd
}

func (a *app) send(ctx context.Context, c *client.Client, d *display, m client.Outgoing) (err error) {
	if m.ID == "" {
		if m.ID, err = client.NewID(); err != nil {
			return err
		}
	}
	sent, err := c.Send(ctx, m)
	if err != nil {
		return maybeSent(err, m.ID)
	}
	if !d.json {
		if sent.Duplicate {
			a.note("the broker had this message already")
		}
		if !sent.Recipient.Online {
			a.note("%s is offline, %s; the message waits for it", m.To, lastSeen(sent.Recipient))
		}
	}
	sent.Recipient.Agent = "" // it is known, and the protocol does not repeat it
	return d.result(struct {
		ID        string       `json:"id"`
		Duplicate bool         `json:"duplicate"`
		Recipient peerDocument `json:"recipient"`
	}{sent.ID, sent.Duplicate, newPeerDocument(sent.Recipient)}, "%s", sent.ID)
}

// maybeSent adds to an error after which the message may be stored, how to find
// out.
func maybeSent(err error, id string) error {
	if errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrTimeout) {
		return fmt.Errorf("%w; the broker may have the message: to send it again safely, add --id %s", err, id)
	}
	return err
}

// bodyFlag is the name of the flag for a JSON body.
const bodyFlag = "body"

// addBodyFlag makes cmd one that takes a body, as a text or with the flag.
func addBodyFlag(cmd *cobra.Command) *string {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = cmd.Root().FlagErrorFunc()(cmd, err)
		if strings.HasPrefix(err.Error(), "unknown ") {
			return usagef("%w, or put -- before a text that begins with a dash", err)
		}
		return err
	})
	return cmd.Flags().String(bodyFlag, "", "send this JSON `value`; - reads it from stdin")
}

// body is the message's body: text is what is left of the arguments, value
// that of the flag, if it was given.
func (a *app) body(ctx context.Context, text []string, value string, given bool) (json.RawMessage, error) {
	if given {
		if len(text) > 0 {
			return nil, usagef("give either TEXT or --body")
		}
		if value == "-" {
			return a.input(ctx, maxInputBytes)
		}
		return json.RawMessage(value), nil
	}
	if len(text) == 0 && isTerminal(a.stdin) {
		return nil, usagef(`nothing to send: give TEXT or --body, or pipe the text in; "-" reads it from here`)
	}
	var s string
	if len(text) > 0 && text[0] != "-" {
		s = text[0]
	} else {
		input, err := a.input(ctx, maxInputBytes)
		if err != nil {
			return nil, err
		}
		if len(input) == 0 {
			return nil, usagef("nothing to send: stdin is empty")
		}
		s = trimNewline(string(input))
	}
	if !utf8.ValidString(s) {
		return nil, &exitError{exitBadData, errors.New("the text is not valid UTF-8; send other data inside a JSON value with --body")}
	}
	return client.TextBody(s), nil
}

// input reads all of stdin, at most limit bytes, or until ctx ends. In the
// latter case the read goes on, for it cannot be interrupted; the process is
// about to exit.
func (a *app) input(ctx context.Context, limit int64) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(a.stdin, limit+1))
		done <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		switch {
		case r.err != nil:
			return nil, fmt.Errorf("read stdin: %w", r.err)
		case int64(len(r.data)) > limit:
			return nil, &exitError{exitBadData, fmt.Errorf("stdin holds more than %d bytes, too much for a message", limit)}
		}
		return r.data, nil
	}
}

// lastSeen says since when an agent has been away.
func lastSeen(p agentrelay.Peer) string {
	if p.LastSeen.IsZero() {
		return "never seen"
	}
	return "last seen " + p.LastSeen.UTC().Format(time.RFC3339)
}
