package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// defaultLease is the lease of a worker's messages. It is renewed while the
// handler runs, so it only says how long a worker that died is waited for.
const defaultLease = time.Minute

// settleTimeout bounds what a worker still says to the broker while it stops.
const settleTimeout = 10 * time.Second

// maxErrorText is how many bytes of a handler's error are passed on.
const maxErrorText = 4000

// WorkerOptions say how messages are worked on.
type WorkerOptions struct {
	// Handle works on one message. Its context ends when the worker is to
	// stop, or when the lease was lost. What it returns settles the message:
	// nil completes it, an error made by Retry puts it back, any other error
	// makes it failed and tells the sender its text, of which the first 4,000
	// bytes are kept. Once the worker is being stopped every error puts the
	// message back; after a lost lease nothing is settled. A panic is left
	// alone: it ends the program, and the broker delivers the message again
	// when its lease is over.
	Handle func(ctx context.Context, m agentrelay.Message) error
	// Concurrency is how many messages are worked on at once. Default 1.
	Concurrency int
	// Lease is how long a message is held for without a renewal. Default 1 min,
	// at least 1 s.
	Lease time.Duration
	// Wait is how long a pull waits for messages, at most a minute. Default
	// 30 s.
	Wait time.Duration
	// OnReceipt is given the receipts in the inbox, which Handle never sees and
	// which are settled after it. Like Handle it is called at the same time
	// from several goroutines. Optional.
	OnReceipt func(m agentrelay.Message)
	// OnError is told what went wrong besides the handler: the broker is away,
	// a lease was lost, a message could not be settled. It is called from
	// several goroutines, too. Optional.
	OnError func(err error)
}

// retryError asks for another delivery.
type retryError struct{ err error }

func (r retryError) Error() string { return r.err.Error() }
func (r retryError) Unwrap() error { return r.err }

// Retry marks an error of a handler: the message is to be delivered again.
func Retry(err error) error { return retryError{err} }

// ErrLeaseLost is the cause with which a handler's context ends when its
// message is no longer this worker's: the broker could not be reached to renew
// the lease before it was over, or somebody ended the message.
var ErrLeaseLost = errors.New("the lease was lost")

// Work registers the agent and works on its messages until ctx ends, which is
// no error, or until an error that trying again does not mend; either way it
// has running handlers stop. When it returns, no handler runs, and every
// message it took is settled or given back; what could not be, the broker
// delivers again when the lease is over. Messages that are given back count
// this delivery as an attempt.
func (c *Client) Work(ctx context.Context, o WorkerOptions) error {
	if o.Handle == nil {
		return errors.New("client: WorkerOptions.Handle is missing")
	}
	w := &worker{client: c, single: c.withoutRetries(), WorkerOptions: o}
	w.Concurrency = max(w.Concurrency, 1)
	if w.Lease == 0 {
		w.Lease = defaultLease
	}
	w.Lease = max(w.Lease, time.Second)
	w.Wait = orDefault(w.Wait)
	w.slots = make(chan struct{}, w.Concurrency)
	ctx, stop := context.WithCancel(ctx)
	defer w.running.Wait()
	defer stop()
	return w.run(ctx)
}

type worker struct {
	// client settles; single, which tries once, does what is done again anyway.
	client, single *Client
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
		if err := w.single.greet(ctx); err != nil {
			return nil, err
		}
		w.greeted = true
	}
	asked := time.Now()
	leased, err := w.single.Pull(ctx, PullOptions{Limit: free, Lease: w.Lease, Wait: w.Wait})
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
	defer cancel(nil) // also if the handler ends its goroutine
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
		// Where that fails it is tried more often as the end draws near.
		for sleep(ctx, max(min(w.Lease/3, time.Until(until)/2), w.Lease/30)) {
			asked := time.Now()
			err := w.renewOnce(ctx, m, until)
			switch {
			case err == nil:
				until = asked.Add(w.Lease)
			case ctx.Err() != nil:
				return
			case isLeaseOver(err) || !time.Now().Before(until):
				err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
				w.report(err)
				cancel(err)
				return
			default:
				w.report(err)
			}
		}
	}()
	return done
}

// renewOnce waits for an answer no longer than the lease lasts.
func (w *worker) renewOnce(ctx context.Context, m agentrelay.Message, until time.Time) error {
	ctx, stop := context.WithDeadline(ctx, until)
	defer stop()
	_, err := w.single.Renew(ctx, Renewal{ID: m.ID, LeaseID: m.LeaseID, For: w.Lease})
	return err
}

// isLeaseOver tells a lease that is over from one that could not be renewed
// right now.
func isLeaseOver(err error) bool {
	return errors.Is(err, agentrelay.ErrNotLeased) || errors.Is(err, agentrelay.ErrLeaseMismatch) ||
		errors.Is(err, agentrelay.ErrNoSuchMessage)
}

// settle ends a lease, also after ctx has ended.
func (w *worker) settle(ctx context.Context, m agentrelay.Message, o agentrelay.Outcome, text string) {
	ctx, stop := w.lastWord(ctx)
	defer stop()
	_, err := w.client.Settle(ctx, Settlement{ID: m.ID, LeaseID: m.LeaseID, Outcome: o, Error: cut(text)})
	if err != nil {
		w.report(err)
	}
}

// fail ends a message and tells its sender why.
func (w *worker) fail(ctx context.Context, m agentrelay.Message, cause error) {
	ctx, stop := w.lastWord(ctx)
	defer stop()
	if _, err := w.client.Ack(ctx, m.ID, AckOptions{Failed: true, Error: cut(cause.Error())}); err != nil {
		w.report(err)
	}
}

// cut keeps the beginning of an error's text: one that is larger than the
// broker takes would leave the message unsettled.
func cut(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "")
}

// lastWord is a context for what is to be said even though the worker stops:
// it outlasts ctx by settleTimeout.
func (w *worker) lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*settleTimeout)
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(settleTimeout, cancel) })
	return detached, func() {
		unhook()
		cancel()
	}
}

func (w *worker) report(err error) {
	if w.OnError != nil {
		w.OnError(err)
	}
}
