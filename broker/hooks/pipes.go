package hooks

import (
	"os"
	"sync"
)

// maxLingering is how many pipes may stay open after their scripts ended.
const maxLingering = 64

// pipes are the relay's ends of the pipes to scripts. A process that a script
// left behind may hold the other end for as long as it lives, and is served
// on: it is not to die of a pipe that breaks.
type pipes struct {
	mu sync.Mutex
	// open tells of each pipe whether it lingers.
	open      map[*os.File]bool
	lingering int
	closed    bool
}

// hold keeps f until it is released; it is closed at the end of all.
func (p *pipes) hold(f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[*os.File]bool{}
	}
	p.open[f] = false
	if p.closed {
		_ = f.Close()
	}
}

// release closes f, which is of no more use.
func (p *pipes) release(f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[f] {
		p.lingering--
	}
	delete(p.open, f)
	_ = f.Close()
}

// linger says that f's script has ended. If f is still open it may stay so,
// unless too many do.
func (p *pipes) linger(f *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lingers, open := p.open[f]
	switch {
	case !open || lingers:
	case p.lingering >= maxLingering:
		_ = f.Close()
	default:
		p.open[f] = true
		p.lingering++
	}
}

// closeAll closes what is open, and whatever is held later.
func (p *pipes) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for f := range p.open {
		_ = f.Close()
	}
}
