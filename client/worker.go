package client

import (
	"context"
	"errors"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// defaultLease is the lease of a worker's messages. It is renewed while the
// handler runs, so it only says how long a worker that died is waited for.
const defaultLease = time.Minute

// settleTimeout bounds what a worker still says to the broker while it stops.
const settleTimeout = 10 * time.Second

// WorkerOptions say how messages are worked on.
type WorkerOptions struct {
	// Handle works on one message. Its context ends when the worker is to
	// stop, or when the lease was lost. What it returns settles the message:
	// nil completes it, an error made by Retry puts it back, any other error
	// makes it failed and tells the sender its text. An error that comes of
	// the worker being stopped puts it back, too.
	Handle func(ctx context.Context, m agentrelay.Message) error
	// Concurrency is how many messages are worked on at once. Default 1.
	Concurrency int
	// Lease is how long a message is held for without a renewal. Default 1 min,
	// at least 1 s.
	Lease time.Duration
	// Wait is how long a pull waits for messages. Default 30 s.
	Wait time.Duration
	// OnReceipt is given the receipts in the inbox, which Handle never sees.
	// Optional.
	OnReceipt func(m agentrelay.Message)
	// OnError is told what went wrong besides the handler: the broker is away,
	// a lease was lost, a message could not be settled. Optional.
	OnError func(err error)
}

// retryError asks for another delivery.
type retryError struct{ err error }

func (r retryError) Error() string { return r.err.Error() }
func (r retryError) Unwrap() error { return r.err }

// Retry marks an error of a handler: the message is to be delivered again.
func Retry(err error) error { return retryError{err} }

// ErrLeaseLost is the cause with which a handler's context ends when its
// message is no longer this worker's: it was too slow to renew, or somebody
// else ended the message.
var ErrLeaseLost = errors.New("the lease was lost")

// Work registers the agent and works on its messages until ctx ends, which is
// no error, or until an error that trying again does not mend. When it
// returns, no handler runs, and every message it took is settled or given
// back; what could not be, the broker delivers again when the lease is over.
func (c *Client) Work(ctx context.Context, o WorkerOptions) error {
	if o.Handle == nil {
		return errors.New("client: WorkerOptions.Handle is missing")
	}
	w := &worker{client: c, WorkerOptions: o}
	w.Concurrency = max(w.Concurrency, 1)
	if w.Lease == 0 {
		w.Lease = defaultLease
	}
	w.Lease = max(w.Lease, time.Second)
	if w.Wait == 0 {
		w.Wait = defaultWait
	}
	w.slots = make(chan struct{}, w.Concurrency)
	defer w.running.Wait()
	return w.run(ctx)
}

type worker struct {
	client *Client
	WorkerOptions
	slots   chan struct{}
	running sync.WaitGroup
	greeted bool
	backoff
}

func (w *worker) run(ctx context.Context) error {
	for {
		free := w.acquire(ctx)
		if ctx.Err() != nil {
			w.release(free)
			return nil
		}
		leased, err := w.pull(ctx, free)
		w.release(free - len(leased))
		w.start(ctx, leased)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			w.backoff.reset()
		case !Passing(err) && !errors.Is(err, errEarly):
			return err
		default:
			w.greeted = false
			w.report(err)
			sleep(ctx, w.pause(err))
		}
	}
}

// acquire waits for a free slot and takes all that are free.
func (w *worker) acquire(ctx context.Context) (free int) {
	select {
	case w.slots <- struct{}{}:
		free = 1
	case <-ctx.Done():
		return 0
	}
	for ; free < w.Concurrency; free++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return free
		}
	}
	return free
}

func (w *worker) release(n int) {
	for range n {
		<-w.slots
	}
}

// pull takes no more than can be started at once, so that nothing waits while
// its lease runs.
func (w *worker) pull(ctx context.Context, free int) ([]agentrelay.Message, error) {
	if !w.greeted {
		if err := w.client.greet(ctx); err != nil {
			return nil, err
		}
		w.greeted = true
	}
	asked := time.Now()
	leased, err := w.client.withoutRetries().Pull(ctx, PullOptions{Limit: free, Lease: w.Lease, Wait: w.Wait})
	if err == nil && len(leased) == 0 && time.Since(asked) < w.Wait/2 {
		err = errEarly
	}
	return leased, err
}

// start works on each message in a goroutine of its own.
func (w *worker) start(ctx context.Context, leased []agentrelay.Message) {
	for _, m := range leased {
		w.running.Go(func() {
			defer w.release(1)
			if ctx.Err() != nil {
				w.settle(ctx, m, agentrelay.OutcomeRetry, "given back: the worker stopped before it began")
				return
			}
			w.work(ctx, m)
		})
	}
}

// work handles one message and settles it.
func (w *worker) work(ctx context.Context, m agentrelay.Message) {
	if m.Type == agentrelay.TypeAck {
		if w.OnReceipt != nil {
			w.OnReceipt(m)
		}
		w.settle(ctx, m, agentrelay.OutcomeCompleted, "")
		return
	}
	handling, cancel := context.WithCancelCause(ctx)
	renewing := w.renew(handling, cancel, m)
	err := w.Handle(handling, m)
	lost := errors.Is(context.Cause(handling), ErrLeaseLost)
	cancel(nil)
	<-renewing
	var again retryError
	switch {
	case lost:
		// Somebody else has the message, or had it ended.
	case err == nil:
		w.settle(ctx, m, agentrelay.OutcomeCompleted, "")
	case errors.As(err, &again) || ctx.Err() != nil:
		w.settle(ctx, m, agentrelay.OutcomeRetry, err.Error())
	default:
		w.fail(ctx, m, err)
	}
}

// renew keeps a lease until ctx ends; the channel it returns is closed then.
// A lease that is lost cancels.
func (w *worker) renew(ctx context.Context, cancel context.CancelCauseFunc, m agentrelay.Message) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		until := time.Now().Add(w.Lease)
		for sleep(ctx, min(w.Lease/3, time.Until(until)/2)) {
			_, err := w.client.withoutRetries().Renew(ctx, Renewal{ID: m.ID, LeaseID: m.LeaseID, For: w.Lease})
			switch {
			case err == nil:
				until = time.Now().Add(w.Lease)
			case ctx.Err() != nil:
				return
			case Passing(err) && time.Now().Before(until):
				w.report(err)
			default:
				w.report(err)
				cancel(ErrLeaseLost)
				return
			}
		}
	}()
	return done
}

// settle ends a lease, also after ctx has ended.
func (w *worker) settle(ctx context.Context, m agentrelay.Message, o agentrelay.Outcome, text string) {
	ctx, stop := w.lastWord(ctx)
	defer stop()
	_, err := w.client.Settle(ctx, Settlement{ID: m.ID, LeaseID: m.LeaseID, Outcome: o, Error: text})
	if err != nil {
		w.report(err)
	}
}

// fail ends a message and tells its sender why.
func (w *worker) fail(ctx context.Context, m agentrelay.Message, cause error) {
	ctx, stop := w.lastWord(ctx)
	defer stop()
	if _, err := w.client.Ack(ctx, m.ID, AckOptions{Failed: true, Error: cause.Error()}); err != nil {
		w.report(err)
	}
}

// lastWord is a context for what is to be said even though the worker stops.
func (w *worker) lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*settleTimeout)
		return detached, cancel
	}
	return context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
}

func (w *worker) report(err error) {
	if w.OnError != nil {
		w.OnError(err)
	}
}
