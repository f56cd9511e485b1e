package connector

import (
	"errors"
	"math/rand/v2"
	"time"
)

// ReconnectPolicy is when a connector is dialled again. Zero values mean the
// defaults.
type ReconnectPolicy struct {
	// First is the pause after the first failure, by default 1 s. Each further
	// one doubles it, up to Max, by default 30 s. Jitter takes off up to a
	// quarter.
	First, Max time.Duration
	// Lasted is how long a connection has to hold after its handshake for the
	// pauses to begin anew, by default 30 s.
	Lasted time.Duration
	// Random returns a number from 0 up to 1, by default at random.
	Random func() float64
}

func (p ReconnectPolicy) withDefaults() ReconnectPolicy {
	if p.First <= 0 {
		p.First = time.Second
	}
	if p.Max <= 0 {
		p.Max = 30 * time.Second
	}
	if p.Lasted <= 0 {
		p.Lasted = 30 * time.Second
	}
	if p.Random == nil {
		p.Random = rand.Float64
	}
	return p
}

// Pause is how long to wait after failures that follow each other, of which
// this is the nth, counted from 0.
func (p ReconnectPolicy) Pause(n int) time.Duration {
	p = p.withDefaults()
	pause := p.First
	for ; n > 0 && pause < p.Max; n-- {
		pause *= 2
	}
	pause = min(pause, p.Max)
	return pause - time.Duration(p.Random()*float64(pause)/4)
}

// ending is how a connection, or the attempt at one, ended.
type ending struct {
	// greeted is whether its handshake was good, and lasted how long it held
	// from then on.
	greeted bool
	lasted  time.Duration
	err     error
}

// reconnector decides what follows an ending.
type reconnector struct {
	policy ReconnectPolicy
	// failures counts those since a connection lasted.
	failures int
	// doubted is whether the connector took back its welcome: it refused a
	// token after a good handshake, and there was none since.
	doubted bool
	// spent is whether there was an immediate dial since a connection lasted.
	spent bool
}

// after returns how long to wait before the next dial, or that there is none.
func (r *reconnector) after(e ending) (pause time.Duration, final bool) {
	if e.greeted {
		r.doubted = false
	}
	if e.greeted && e.lasted >= r.policy.Lasted {
		r.failures, r.spent = 0, false
	}
	var closed *CloseError
	if errors.As(e.err, &closed) && closed.Code == CloseUnauthorized {
		switch {
		case e.greeted:
			r.doubted = true
			if !r.spent {
				r.spent = true
				return 0, false
			}
		case r.doubted && closed.Reason != ErrExpired.Error():
			return 0, true
		}
	}
	r.failures++
	return r.policy.Pause(r.failures - 1), false
}
