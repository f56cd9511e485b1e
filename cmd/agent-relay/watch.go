package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

const (
	// watchWait is how long one poll of watch waits: shorter than what
	// proxies allow a connection to be silent.
	watchWait = 30 * time.Second
	// The pause before another try doubles from the first to the last.
	firstPause = 2 * time.Second
	lastPause  = 30 * time.Second
)

func (a *app) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print messages as they come, until interrupted",
		Long: `Registers the agent and prints the messages that wait for it, then each new one
as it comes, as recv does. An interrupt ends it with exit status 0.

Once watch has found the broker it stays: while the broker is away or busy it
tries again after 2, 4, 8 and up to 30 seconds, and goes on where it was.` + connectionHelp,
		Example: `  agent-relay watch --agent beta | while read -r message; do …; done`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	var since string
	cmd.Flags().StringVar(&since, "since", "", "begin after this `cursor` or message id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd.Context(), flags)
		if err == nil {
			defer c.Close()
			w := watcher{app: a, inbox: c, out: a.stdout, cursor: since, now: time.Now, pause: pause}
			err = w.run(cmd.Context())
		}
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

// inbox is what watch needs of a client.
type inbox interface {
	Handshake(context.Context) (client.Broker, error)
	Register(context.Context) error
	Poll(context.Context, client.PollOptions) (client.Page, error)
}

// watcher prints an inbox as it fills.
type watcher struct {
	app    *app
	inbox  inbox
	out    io.Writer
	cursor string
	now    func() time.Time
	pause  func(context.Context, time.Duration)
}

// errEarly says that the broker ended a wait well before its time, as it does
// when it shuts down.
var errEarly = errors.New("the broker is going away")

// run returns when ctx ends, when out fails, and when trying again is of no
// use: at the first call every failure is of that kind.
func (w *watcher) run(ctx context.Context) error {
	if err := w.inbox.Register(ctx); err != nil {
		return err
	}
	backoff, away := firstPause, false
	for ctx.Err() == nil {
		err := w.turn(ctx, away)
		if err == nil {
			if away {
				w.app.note("the broker is back")
			}
			backoff, away = firstPause, false
			continue
		}
		retryAfter, ok := passing(err)
		if !ok || ctx.Err() != nil {
			return err
		}
		if !away {
			w.app.note("%v; trying again", err)
		}
		away = true
		w.pause(ctx, max(backoff, retryAfter))
		backoff = min(2*backoff, lastPause)
	}
	return ctx.Err()
}

// turn polls once. A broker that was away may come back with another database
// and is greeted anew first.
func (w *watcher) turn(ctx context.Context, away bool) error {
	o := client.PollOptions{Since: w.cursor, Wait: watchWait}
	if away {
		if _, err := w.inbox.Handshake(ctx); err != nil {
			return err
		}
		if err := w.inbox.Register(ctx); err != nil {
			return err
		}
		o.Wait = 0
	}
	asked := w.now()
	page, err := w.inbox.Poll(ctx, o)
	if err != nil {
		return err
	}
	if page.Reset {
		w.app.noteReset()
	}
	for i := range page.Messages {
		if err := printMessage(w.out, &page.Messages[i]); err != nil {
			return err
		}
	}
	if len(page.Messages) == 0 && w.now().Sub(asked) < o.Wait/2 {
		return errEarly
	}
	w.cursor = page.Cursor
	return nil
}

// passing reports whether trying again may help, and after how long at least.
func passing(err error) (retryAfter time.Duration, ok bool) {
	var e *agentrelay.Error
	if errors.As(err, &e) {
		switch e.Code {
		case agentrelay.CodeBusy, agentrelay.CodeRateLimited, agentrelay.CodeStorageFull, agentrelay.CodeLocked:
			return e.RetryAfter, true
		}
		return 0, false
	}
	for _, target := range []error{errEarly, client.ErrUnreachable, client.ErrTimeout, client.ErrNotRelay} {
		if errors.Is(err, target) {
			return 0, true
		}
	}
	return 0, false
}

// pause returns after d, or as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
