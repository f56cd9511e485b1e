package hooks

import (
	"sync"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// installedFor is how long what was seen counts: a new script is noticed
// within a second.
const installedFor = 500 * time.Millisecond

// installed remembers which kinds have something to run.
type installed struct {
	mu    sync.Mutex
	kinds map[hook.Kind]seen
	// watched says that Run looks, so that whoever asks need not.
	watched bool
}

type seen struct {
	at  time.Time
	any bool
}

// Installed tells whether an event of kind would run something, or fail. What
// it says may be half a second old. It is cheap enough to ask for every
// message, and while Run runs it does not touch the disk.
func (d *Dispatcher) Installed(kind hook.Kind) bool {
	if kind.Err() != nil {
		return false
	}
	i := &d.installed
	i.mu.Lock()
	defer i.mu.Unlock()
	if s, ok := i.kinds[kind]; ok && (i.watched || time.Since(s.at) < installedFor) {
		return s.any
	}
	return i.note(kind, d.look(kind))
}

func (i *installed) note(kind hook.Kind, s seen) bool {
	if i.kinds == nil {
		i.kinds = map[hook.Kind]seen{}
	}
	i.kinds[kind] = s
	return s.any
}

// look sees whether there is something to run.
func (d *Dispatcher) look(kind hook.Kind) seen {
	now := time.Now()
	t := openTree(d.o.Dir, kind)
	t.close()
	return seen{at: now, any: t.runs() || len(t.failures()) > 0}
}

// watch looks again and again, until done.
func (d *Dispatcher) watch(done <-chan struct{}) {
	tick := time.NewTicker(installedFor)
	defer tick.Stop()
	i := &d.installed
	for {
		for _, kind := range hook.Kinds() {
			s := d.look(kind)
			i.mu.Lock()
			i.note(kind, s)
			i.mu.Unlock()
		}
		i.setWatched(true)
		select {
		case <-tick.C:
		case <-done:
			i.setWatched(false)
			return
		}
	}
}

func (i *installed) setWatched(watched bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.watched = watched
}
