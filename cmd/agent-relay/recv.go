package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) recvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recv",
		Short: "Print the messages that came for an agent",
		Long: `Registers the agent and prints the messages that came for it, oldest first: one
page, beginning after the last message that recv printed before for this agent
of this broker. How far it came is kept in agent-relay/recv in $XDG_STATE_HOME
(default ~/.local/state; on Windows %LocalAppData%), after the messages were
written out: after a crash they are printed again, and two that run at once
share the messages between them. A message that is delivered again, as after a
lease, is not printed again. --reset begins with the oldest message that waits.
With --since the kept place is neither used nor changed.

Reading takes nothing away: a message waits until it is acknowledged (--ack, or
"agent-relay ack") or expires.

With --wait, recv waits that long for a message if there is none. Having none
is no failure: nothing is printed, and the exit status is 0.` + jsonHelp + connectionHelp,
		Example: `  agent-relay recv --agent beta --wait 30s
  agent-relay recv --agent beta --ack --json | jq -r .body.text`,
		Args: arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	page := addPageFlags(cmd)
	page.addWait(cmd)
	var since string
	var ack, reset bool
	cmd.Flags().StringVar(&since, "since", "", "print what comes after this `cursor` or message id; after nothing if empty")
	cmd.Flags().BoolVar(&ack, "ack", false, "acknowledge the messages once they are printed")
	cmd.Flags().BoolVar(&reset, "reset", false, "forget what was printed before")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if reset && cmd.Flags().Changed("since") {
			return usagef("give either --since or --reset")
		}
		return page.check(cmd, args)
	}
	cmd.RunE = a.calling(flags, true, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		r := receiver{app: a, client: c, out: d, page: page, ack: ack}
		if cmd.Flags().Changed("since") {
			r.place = &givenPlace{client.Progress{Cursor: since}}
		} else {
			kept, err := a.keptPlace(c)
			if err != nil {
				return err
			}
			if reset {
				if err := kept.reset(ctx); err != nil {
					return err
				}
			}
			r.place = kept
		}
		if err := c.Register(ctx); err != nil {
			return err
		}
		return r.run(ctx)
	})
	return cmd
}

// place is where in an inbox recv stands.
type place interface {
	// update calls change with the place as it is, and keeps what change made
	// of it unless that fails. Nobody else updates it meanwhile.
	update(ctx context.Context, change func(*client.Progress) error) error
}

// givenPlace is one that is kept for this run only.
type givenPlace struct{ client.Progress }

func (g *givenPlace) update(_ context.Context, change func(*client.Progress) error) error {
	return change(&g.Progress)
}

// receiver prints one page of an inbox.
type receiver struct {
	app    *app
	client *client.Client
	out    *display
	page   *pageFlags
	ack    bool
	place  place
}

// run returns when something was printed, or there is nothing to print and no
// more time to wait. A page that holds nothing new is passed over.
func (r *receiver) run(ctx context.Context) error {
	var since string
	remember := func(p *client.Progress) error {
		since = p.Cursor
		return nil
	}
	for end := time.Now().Add(r.page.wait); ; {
		if err := r.place.update(ctx, remember); err != nil {
			return err
		}
		page, err := r.client.Poll(ctx, client.PollOptions{
			Since: since, Limit: r.page.limit, MaxBytes: r.page.maxBytes, Wait: max(0, time.Until(end)),
		})
		if err != nil {
			return err
		}
		if page.Reset {
			r.app.noteReset()
		}
		if len(page.Messages) == 0 {
			if r.out.width > 0 {
				r.app.note("nothing new")
			}
			return r.beginAnew(ctx, since, page)
		}
		printed := 0
		err = r.place.update(ctx, func(p *client.Progress) (err error) {
			printed, err = r.deliver(ctx, p, since, page)
			return err
		})
		if err != nil || printed > 0 {
			return err
		}
	}
}

// beginAnew forgets a cursor that the broker does not know, so that the next
// run need not say so again. A page that holds messages brings another one.
func (r *receiver) beginAnew(ctx context.Context, since string, page client.Page) error {
	if !page.Reset {
		return nil
	}
	return r.place.update(ctx, func(p *client.Progress) error {
		if p.Cursor == since {
			p.Cursor = ""
		}
		return nil
	})
}

// deliver prints what p has not seen of a page that was asked for since, and
// moves p past it, unless another recv moved p meanwhile.
func (r *receiver) deliver(ctx context.Context, p *client.Progress, since string, page client.Page) (printed int, err error) {
	fresh := p.Unseen(page.Messages)
	r.out.messages(fresh)
	if err := r.out.flush(); err != nil {
		return 0, err
	}
	if r.ack {
		if err := r.acknowledge(ctx, fresh); err != nil {
			return 0, err
		}
	}
	if p.Cursor == since {
		p.Cursor = page.Cursor
	}
	p.Add(fresh)
	return len(fresh), nil
}

// acknowledge ends messages; receipts are not acknowledged. One that is gone by
// now needs no end.
func (r *receiver) acknowledge(ctx context.Context, messages []agentrelay.Message) error {
	for i := range messages {
		if messages[i].Type == agentrelay.TypeAck {
			continue
		}
		_, err := r.client.Ack(ctx, messages[i].ID, client.AckOptions{})
		if err != nil && !errors.Is(err, agentrelay.ErrNoSuchMessage) {
			return err
		}
	}
	return nil
}

func (a *app) noteReset() {
	a.note("the broker does not know this cursor, or no longer; beginning with the oldest message it keeps")
}
