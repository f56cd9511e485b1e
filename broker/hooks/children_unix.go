//go:build !windows

package hooks

import (
	"os"
	"sync"

	"github.com/agent-relay/agent-relay/internal/umask"
)

// children are the processes that the runner started and has not reaped.
type children struct {
	mu   sync.Mutex
	pids map[int]bool
}

// child is a script's process.
type child struct {
	pid     int
	process *os.Process
	// state is how it ended, once it is reaped; nil, whose exit code is -1, if
	// that cannot be known.
	state  *os.ProcessState
	reaped bool
}

// start starts a process that makes its files private.
func (c *children) start(name string, attr *os.ProcAttr) (*child, error) {
	// Locked, so that it is known before anybody looks for orphans.
	c.mu.Lock()
	defer c.mu.Unlock()
	var p *os.Process
	err := umask.Private(func() (err error) {
		p, err = os.StartProcess(name, []string{name}, attr)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.pids == nil {
		c.pids = map[int]bool{}
	}
	c.pids[p.Pid] = true
	return &child{pid: p.Pid, process: p}, nil
}

// reap takes a process that has exited out of the system's table.
func (c *children) reap(p *child) {
	p.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, p.pid)
}

// wait waits for the process, unless that was done.
func (p *child) wait() {
	if p.reaped {
		return
	}
	p.reaped = true
	// It fails if somebody else has reaped the process.
	p.state, _ = p.process.Wait()
}
