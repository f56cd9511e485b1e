package hooks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// untilExited waits until the process has exited. It does not reap it, so
// that until then its number, and that of its group, is nobody else's.
func (p *child) untilExited() {
	_, _ = retry(func() (int, error) {
		return 0, unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	})
}

var hasProc = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/fd")
	return err == nil
})

// workDir names the kind's directory by its descriptor: the one that was
// examined, whatever its path leads to by now. Without /proc it is the path.
func workDir(t *tree) string {
	if hasProc() {
		return fmt.Sprintf("/proc/self/fd/%d", t.kind.Fd())
	}
	return t.path
}

// orphanPause is how long signals are gathered for one search for orphans.
const orphanPause = 200 * time.Millisecond

// reapOrphans reaps the processes that scripts left behind, when they end as
// children of this process, until ctx ends.
func (r *runner) reapOrphans(ctx context.Context) {
	exits := make(chan os.Signal, 1)
	signal.Notify(exits, unix.SIGCHLD)
	defer signal.Stop(exits)
	for {
		r.children.reapOrphans()
		select {
		case <-exits:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(orphanPause):
		case <-ctx.Done():
			return
		}
	}
}

// reapOrphans reaps those zombies among this process's children that nobody
// waits for. These are all that are neither scripts of the runner nor in this
// process's own group, where other packages' children are: a script has a
// group of its own, and so has what it leaves behind.
func (c *children) reapOrphans() {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer proc.Close()
	// Held to the end: a script that is started now may be a zombie already.
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || c.pids[pid] {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil || !orphaned(string(stat), os.Getpid(), unix.Getpgrp()) {
			continue
		}
		for {
			_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// orphaned reads a line of /proc/PID/stat: whether it is of a zombie whose
// parent is the given process, and that is not in the given group.
func orphaned(stat string, parent, group int) bool {
	// The name in parentheses may hold anything.
	_, rest, found := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	return found && len(fields) >= 3 && fields[0] == "Z" &&
		fields[1] == strconv.Itoa(parent) && fields[2] != strconv.Itoa(group)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
