//go:build !windows

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-relay/agent-relay/internal/hook"
)

const (
	// stderrGrace is how long the rest of standard error is waited for after
	// a script ended: a process that it left behind may hold it open.
	stderrGrace = 100 * time.Millisecond
	// killGrace is how long the end of a script that was killed is waited
	// for. One that hangs in the kernel, say on a network file system, ends
	// when that lets go of it.
	killGrace = time.Second
	// busyTries and busyPause bound the wait for a script that is open for
	// writing: it is just being copied, or a process that is just being
	// started by another goroutine still holds the writer's descriptor.
	busyTries = 10
	busyPause = 10 * time.Millisecond
)

// runner runs scripts.
type runner struct {
	busy     *sync.WaitGroup
	pipes    pipes
	children children
	// kill kills a process group, adopts tells whether orphans fall to this
	// process.
	kill   func(group int)
	adopts func() bool
}

// newRunner returns a runner whose goroutines busy counts.
func newRunner(busy *sync.WaitGroup) *runner {
	closeInherited()
	return &runner{busy: busy, kill: killGroup, adopts: func() bool { return os.Getpid() == 1 }}
}

// closeInherited keeps from scripts what this process itself was given by
// whoever started it. What Go opens is closed for them anyway.
func closeInherited() {
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func killGroup(group int) {
	// It may have gone already.
	_ = unix.Kill(-group, unix.SIGKILL)
}

// running is a script's process with the relay's ends of its pipes.
type running struct {
	*child
	stdin, stderr *os.File
	tail          tail
	drained       chan struct{}
}

// run runs one script to its end, its deadline or that of ctx.
func (r *runner) run(ctx context.Context, t *tree, name string, e execution) (run hook.Run) {
	began := time.Now()
	run.Script = name
	defer func() { run.Took = time.Since(began) }()
	deadline := time.NewTimer(e.timeout)
	defer deadline.Stop()
	p, err := r.start(ctx, t, name, e)
	if err != nil {
		run.Reason = "spawn failed: " + explain(err)
		return run
	}
	r.feed(p, e.payload)
	r.drain(p)
	run.Reason = r.await(ctx, p, deadline.C, e.timeout)
	r.awaitStderr(p)
	run.StderrTail = p.tail.String()
	if run.Reason == "" {
		run.Code = p.state.ExitCode() // -1 for a signal
	}
	return run
}

// start starts the script. The pipes are the caller's to use up.
func (r *runner) start(ctx context.Context, t *tree, name string, e execution) (*running, error) {
	stdin, toStdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	fromStderr, stderr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, toStdin.Close())
	}
	defer stderr.Close()
	p := &running{stdin: toStdin, stderr: fromStderr, drained: make(chan struct{})}
	stdout, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err == nil {
		defer stdout.Close()
		p.child, err = r.startFree(ctx, t, name, &os.ProcAttr{
			Dir:   workDir(t),
			Env:   e.env,
			Files: []*os.File{stdin, stdout, stderr},
			Sys:   &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		return nil, errors.Join(err, toStdin.Close(), fromStderr.Close())
	}
	return p, nil
}

// startFree starts the script when nobody writes to it any more.
func (r *runner) startFree(ctx context.Context, t *tree, name string, attr *os.ProcAttr) (c *child, err error) {
	for range busyTries {
		// Relative to the directory that was examined.
		if c, err = r.children.start("./"+name, attr); !errors.Is(err, unix.ETXTBSY) {
			return c, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, err
}

// explain says why a script could not be started, and what to do.
func explain(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	text := err.Error()
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return text + "; begin it with a line such as #!/bin/sh"
	case errors.Is(err, unix.ENOENT):
		return text + "; the interpreter that its first line names does not exist"
	case errors.Is(err, unix.EACCES):
		return text + "; the relay's user may not execute it, or its file system is mounted noexec"
	case errors.Is(err, unix.ETXTBSY):
		return text + "; close it in whatever writes to it"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return text + "; raise the limit of open files"
	}
	return text
}

// feed writes the payload to the script, however much of it is read.
func (r *runner) feed(p *running, payload []byte) {
	r.pipes.hold(p.stdin)
	r.busy.Go(func() {
		defer r.pipes.release(p.stdin)
		_, _ = p.stdin.Write(payload) // nobody has to read it
	})
}

// drain reads what the script writes to standard error as it comes.
func (r *runner) drain(p *running) {
	r.pipes.hold(p.stderr)
	r.busy.Go(func() {
		defer r.pipes.release(p.stderr)
		defer close(p.drained)
		_, _ = io.Copy(&p.tail, p.stderr) // it ends, or is closed
	})
}

// await waits until the script has ended and reaps it. It returns why the
// script was killed, if it was.
func (r *runner) await(ctx context.Context, p *running, deadline <-chan time.Time, timeout time.Duration) (killed string) {
	exited := make(chan struct{})
	r.busy.Go(func() {
		p.untilExited()
		close(exited)
	})
	select {
	case <-exited:
	case <-deadline:
		killed = fmt.Sprintf("timed out (>%s)", timeout)
	case <-ctx.Done():
		killed = reason(context.Cause(ctx))
	}
	select {
	case <-exited: // first, should several be ready
		r.children.reap(p.child)
		return ""
	default:
	}
	// The leader is not reaped yet, so the group's number is still its own.
	r.kill(p.pid)
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	select {
	case <-exited:
		r.children.reap(p.child)
	case <-grace.C:
		r.busy.Go(func() {
			<-exited
			r.children.reap(p.child)
		})
	}
	return killed
}

// awaitStderr waits for the rest of standard error, but not for long.
func (r *runner) awaitStderr(p *running) {
	grace := time.NewTimer(stderrGrace)
	defer grace.Stop()
	select {
	case <-p.drained:
	case <-grace.C:
	}
	r.pipes.linger(p.stderr)
	r.pipes.linger(p.stdin)
}
