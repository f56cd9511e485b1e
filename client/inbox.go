package client

import (
	"context"
	"errors"
	"iter"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// defaultWait is how long one poll or pull of something that runs on waits:
// less than proxies allow a connection to be silent.
const defaultWait = 30 * time.Second

// MessagesOptions say how an inbox is read.
type MessagesOptions struct {
	// Progress keeps the cursor between runs. Default: it is kept while the
	// loop runs, which then begins with the oldest message.
	Progress ProgressStore
	// Since is the cursor or message id to begin after while Progress keeps
	// none.
	Since string
	// Limit and MaxBytes bound a page as in PollOptions.
	Limit, MaxBytes int
	// Wait is how long a poll waits for messages, at most a minute. Default
	// 30 s.
	Wait time.Duration
	// OnAway is told when the broker is away or busy and the loop will try
	// again after a pause; OnBack when it answers again; OnReset when it no
	// longer knows the cursor and begins with the oldest message it keeps. All
	// are optional.
	OnAway  func(err error, pause time.Duration)
	OnBack  func()
	OnReset func()
}

// Messages registers the agent and returns its messages as they come, oldest
// first, without end; receipts are among them. While the broker is away it
// tries again after 2, 4, 8 and up to 30 s. It ends when ctx does, with the
// error of ctx, or with the first error that trying again does not mend; that
// comes last, with an empty message.
//
// A message counts as read when the loop asks for the next one; the cursor is
// saved when its page was read. A loop that is left early, or a crash, sees
// again what was not. Otherwise each message is seen once, even if the broker
// delivers it again, as long as its id is among the last 1,000.
//
// Reading takes nothing out of the inbox; Ack does.
func (c *Client) Messages(ctx context.Context, o MessagesOptions) iter.Seq2[agentrelay.Message, error] {
	return func(yield func(agentrelay.Message, error) bool) {
		r, err := c.newReader(ctx, o)
		if err == nil {
			err = r.run(ctx, yield)
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(agentrelay.Message{}, err)
		}
	}
}

// errLeft says that the loop was left.
var errLeft = errors.New("the loop was left")

// reader reads one inbox.
type reader struct {
	client *Client // without retries of its own
	MessagesOptions
	recall *recall
	// away says that the broker is to be greeted first.
	away bool
	backoff
}

func (c *Client) newReader(ctx context.Context, o MessagesOptions) (*reader, error) {
	if o.Progress == nil {
		o.Progress = new(memory)
	}
	o.Wait = orDefault(o.Wait)
	p, err := o.Progress.Load(ctx)
	if err != nil {
		return nil, err
	}
	if p.Cursor == "" {
		p.Cursor = o.Since
	}
	// Begins as after an absence: with a greeting and a registration.
	return &reader{client: c.withoutRetries(), MessagesOptions: o, recall: newRecall(p), away: true}, nil
}

// orDefault is how long a poll of something that runs on waits.
func orDefault(wait time.Duration) time.Duration {
	if wait <= 0 {
		return defaultWait
	}
	return waitFor(wait)
}

func (r *reader) run(ctx context.Context, yield func(agentrelay.Message, error) bool) error {
	for {
		page, err := r.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if err := r.deliver(ctx, page, yield); err != nil {
				return err
			}
		case !Passing(err) && !errors.Is(err, errEarly):
			return err
		default:
			if err := r.waitOut(ctx, err); err != nil {
				return err
			}
		}
	}
}

// errEarly says that the broker ended a wait well before its time, as it does
// when it shuts down.
var errEarly = errors.New("the broker is going away")

// poll asks once. A broker that was away may come back with another database
// and is greeted anew first.
func (r *reader) poll(ctx context.Context) (Page, error) {
	o := PollOptions{Since: r.recall.cursor, Limit: r.Limit, MaxBytes: r.MaxBytes, Wait: r.Wait}
	if r.away {
		if err := r.client.greet(ctx); err != nil {
			return Page{}, err
		}
		o.Wait = 0
	}
	asked := time.Now()
	page, err := r.client.Poll(ctx, o)
	if err != nil {
		return Page{}, err
	}
	if len(page.Messages) == 0 && time.Since(asked) < o.Wait/2 {
		return Page{}, errEarly
	}
	if r.next > 0 && r.OnBack != nil {
		r.OnBack()
	}
	r.away = false
	r.backoff.reset()
	return page, nil
}

// greet makes sure that a broker is there, and that it knows the agent.
func (c *Client) greet(ctx context.Context) error {
	if _, err := c.Handshake(ctx); err != nil {
		return err
	}
	return c.Register(ctx)
}

// waitOut pauses after a failure that may pass.
func (r *reader) waitOut(ctx context.Context, err error) error {
	r.away = true
	pause := r.pause(err)
	if r.OnAway != nil {
		r.OnAway(err, pause)
	}
	sleep(ctx, pause)
	return ctx.Err()
}

// deliver hands a page to the loop.
func (r *reader) deliver(ctx context.Context, page Page, yield func(agentrelay.Message, error) bool) error {
	if page.Reset && r.OnReset != nil {
		r.OnReset()
	}
	read := 0
	for _, m := range page.Messages {
		if r.recall.seen[m.ID] {
			continue
		}
		end := ctx.Err()
		if end == nil && !yield(m, nil) {
			end = errLeft
		}
		if end != nil {
			if read > 0 {
				_ = r.Progress.Save(context.WithoutCancel(ctx), r.recall.progress()) // else they come again
			}
			return end
		}
		r.recall.add(m.ID)
		read++
	}
	switch {
	case len(page.Messages) > 0:
		r.recall.cursor = page.Cursor
	case page.Reset:
		r.recall.cursor = "" // else the next page says it again
	default:
		return nil
	}
	return r.Progress.Save(context.WithoutCancel(ctx), r.recall.progress())
}
