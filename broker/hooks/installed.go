package hooks

import (
	"sync"
	"time"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// installedFor is how long Installed remembers what it saw: a new script is
// noticed within a second.
const installedFor = 500 * time.Millisecond

// installed remembers which kinds have something to run.
type installed struct {
	mu    sync.Mutex
	kinds map[hook.Kind]seen
}

type seen struct {
	at  time.Time
	any bool
}

// Installed tells whether an event of kind would run something, or fail. It
// is cheap enough to ask for every message: it looks at most twice a second,
// so what it says may be half a second old.
func (d *Dispatcher) Installed(kind hook.Kind) bool {
	if kind.Err() != nil {
		return false
	}
	d.installed.mu.Lock()
	defer d.installed.mu.Unlock()
	now := time.Now()
	if s, ok := d.installed.kinds[kind]; ok && now.Sub(s.at) < installedFor {
		return s.any
	}
	t := openTree(d.o.Dir, kind)
	t.close()
	s := seen{at: now, any: t.runs() || len(t.failures()) > 0}
	if d.installed.kinds == nil {
		d.installed.kinds = map[hook.Kind]seen{}
	}
	d.installed.kinds[kind] = s
	return s.any
}
