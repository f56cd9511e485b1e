// Package hooks runs the scripts in hooks.d when something happens. It knows
// kinds and payloads, and nothing of what they are about.
//
// The scripts of a kind are the regular files in hooks.d/KIND (symbolic links
// are followed) that have an execute bit; dot files, *~ and *.disabled are
// left alone. They run in lexical order, one after the other, and one that
// fails does not stop the next. A script
//
//   - is executed as ./NAME, without a shell, in a process group of its own;
//   - reads the payload as compact JSON from standard input, then its end;
//   - writes to standard output for nobody, and to standard error for the
//     answer, which quotes the last 1024 bytes;
//   - finds PATH, HOME, LANG, TZ and TMPDIR as the relay has them in its
//     environment, AGENT_RELAY_HOOK_KIND, and AGENT_RELAY_HOOK_ID, which all
//     scripts of one event share; nothing else;
//   - works in hooks.d/KIND with umask 0077;
//   - has Options.Timeout from its start. Then its whole group is killed. One
//     that ends before may leave processes behind: these live on, and hold
//     the answer for at most 100 ms.
//
// Refused are scripts that group or others may write to, that belong to
// neither root nor the relay's user, or that are setuid or setgid; and so is
// everything in a kind's directory or a hooks.d of which the same is true.
// This is checked before each execution, on the directories that are open and
// relative to them. Who may write to another directory on the way to the
// target of a symbolic link must be trusted.
//
// Scripts do not run on Windows: events of which there is a directory fail
// there.
package hooks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// Options say where the scripts are and what they may take. A zero value
// stands for the default.
type Options struct {
	// Dir is hooks.d. It need not exist.
	Dir string
	// Timeout bounds each script; 5 s.
	Timeout time.Duration
	// MaxConcurrent is how many events run scripts at a time, those fired by
	// Enforce counted apart from the others; 4.
	MaxConcurrent int
	// MaxWaiting is how many events fired by Fire, and how many fired by
	// Enforce, may wait for their turn; more fail at once. 128.
	MaxWaiting int
	// Queue is how many events fired by FireLater are kept; 256.
	Queue int
	// Env is where the scripts' environment comes from; os.Getenv.
	Env func(name string) string
	// Done, unless nil, is called after each event that ran a script or
	// failed, but for those that could not be understood. Calls may overlap.
	Done func(hook.Kind, hook.Result)
	// Log is told of every failure, but never what a script read or wrote;
	// nil is nobody.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 4
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 128
	}
	if o.Queue <= 0 {
		o.Queue = 256
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
	if o.Done == nil {
		o.Done = func(hook.Kind, hook.Result) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Dispatcher fires events. Its methods may be called at the same time. Fire,
// Enforce, Installed and List work before Run too.
type Dispatcher struct {
	o   Options
	env []string

	ordinary, enforcing *slots
	queue               *queue
	installed           installed
	watches             bool // but in tests that cannot wait
	runner              *runner
	counters            counters

	// life ends, with a cause, when nothing may run any more.
	life context.Context
	end  context.CancelCauseFunc
	// busy counts events and goroutines under way. mu keeps it from growing
	// once stopped is set.
	mu      sync.Mutex
	stopped bool
	busy    sync.WaitGroup
}

// errShutdown is why scripts end when Run does.
var errShutdown = errors.New("the relay is shutting down")

// New returns a dispatcher for the scripts in o.Dir. It does not look for
// them yet. So that scripts do not get them, the descriptors that the process
// was started with, but for the first three, are marked to be closed on exec.
func New(o Options) (*Dispatcher, error) {
	if o.Dir == "" {
		return nil, errors.New("hooks: no directory is given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	d := &Dispatcher{o: o.withDefaults(), watches: true}
	d.env = environment(d.o.Env)
	d.ordinary = newSlots(d.o.MaxConcurrent, d.o.MaxWaiting)
	d.enforcing = newSlots(d.o.MaxConcurrent, d.o.MaxWaiting)
	d.queue = newQueue(d.o.Queue)
	d.runner = newRunner(&d.busy)
	d.life, d.end = context.WithCancelCause(context.Background())
	return d, nil
}

// Run runs what FireLater queues until ctx ends. It then kills the process
// groups of all scripts that run, drops what is queued, and returns nil when
// nothing of the dispatcher is left. Events fired afterwards fail. As process
// 1 it also reaps the orphans that fall to it. It is called at most once.
func (d *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range d.o.MaxConcurrent {
		workers.Go(d.work)
	}
	if d.watches {
		workers.Go(func() { d.watch(d.life.Done()) })
	}
	if d.runner.adopts() {
		workers.Go(func() { d.runner.reapOrphans(d.life) })
	}
	<-ctx.Done()
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.end(errShutdown)
	d.runner.pipes.closeAll()
	workers.Wait()
	d.busy.Wait()
	if dropped := d.queue.clear(); dropped > 0 {
		d.counters.dropped.Add(uint64(dropped))
		d.o.Log.Warn("hooks that waited were dropped at the end", "dropped", dropped)
	}
	return nil
}

// begin enters an event. Its context ends with ctx, or when the dispatcher
// stops. The caller calls end.
func (d *Dispatcher) begin(ctx context.Context) (event context.Context, end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil, nil, errShutdown
	}
	d.busy.Add(1)
	event, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(errShutdown) })
	return event, func() {
		stop()
		cancel(nil)
		d.busy.Done()
	}, nil
}

// defaultPath is for a relay that was started without PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// environment is what every script is given of the relay's own.
func environment(get func(string) string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"} {
		value := get(name)
		if value == "" && name == "PATH" {
			value = defaultPath
		}
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
