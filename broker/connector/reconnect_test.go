package connector

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func refusal(reason string) error { return &CloseError{CloseUnauthorized, reason} }

func TestReconnector(t *testing.T) {
	const (
		final = -1
		s     = time.Second
	)
	refused, expired, broken := refusal("unauthorized"), refusal("expired"), errors.New("broken")
	for name, c := range map[string]struct {
		ends []ending
		want []time.Duration
	}{
		"failures": {
			slices.Repeat([]ending{{err: broken}}, 8),
			[]time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s},
		},
		"refused before any descriptor": {
			[]ending{{err: refused}, {err: refused}, {err: expired}, {err: refused}}, []time.Duration{s, 2 * s, 4 * s, 8 * s},
		},
		"a connection that did not last": {
			[]ending{{err: broken}, {true, 29 * s, broken}, {true, 0, broken}}, []time.Duration{s, 2 * s, 4 * s},
		},
		"a connection that lasted": {
			[]ending{{err: broken}, {err: broken}, {true, 30 * s, broken}, {err: broken}}, []time.Duration{s, 2 * s, s, 2 * s},
		},
		"refused twice": {
			[]ending{{true, s, refused}, {err: refused}}, []time.Duration{0, final},
		},
		"refused twice, other failures in between": {
			[]ending{{true, s, refused}, {err: broken}, {err: broken}, {err: refused}}, []time.Duration{0, s, 2 * s, final},
		},
		"expired is never final": {
			[]ending{{true, s, refused}, {err: expired}, {err: expired}, {err: refused}}, []time.Duration{0, s, 2 * s, final},
		},
		"expired after a handshake": {
			[]ending{{true, s, expired}, {err: expired}, {err: broken}}, []time.Duration{0, s, 2 * s},
		},
		"welcome again": {
			[]ending{{true, s, refused}, {true, s, broken}, {err: refused}, {err: refused}}, []time.Duration{0, s, 2 * s, 4 * s},
		},
		"welcome and refused in turn, at once": {
			[]ending{{true, 0, refused}, {true, 0, refused}, {true, 0, refused}}, []time.Duration{0, s, 2 * s},
		},
		"welcome and refused in turn, rarely": {
			[]ending{{true, 30 * s, refused}, {true, 30 * s, refused}, {true, 30 * s, refused}, {err: refused}}, []time.Duration{0, 0, 0, final},
		},
		"another close code": {
			[]ending{{true, s, &CloseError{4402, "unauthorized"}}, {err: &CloseError{4402, "unauthorized"}}}, []time.Duration{s, 2 * s},
		},
	} {
		r := reconnector{policy: ReconnectPolicy{Random: func() float64 { return 0 }}.withDefaults()}
		for i, e := range c.ends {
			pause, end := r.after(e)
			if end {
				pause = final
			}
			if pause != c.want[i] {
				t.Errorf("%s: after end %d the pause is %v, want %v", name, i+1, pause, c.want[i])
			}
		}
	}
}

func TestPauseJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		pause := ReconnectPolicy{}.Pause(2)
		if pause <= 3*time.Second || pause > 4*time.Second {
			t.Fatalf("the pause is %v", pause)
		}
		seen[pause] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 pauses are %d", len(seen))
	}
	if pause := (ReconnectPolicy{Random: func() float64 { return 1 }}).Pause(1 << 40); pause != 22500*time.Millisecond {
		t.Errorf("the longest pause is at least %v", pause)
	}
}

// A connector that welcomes the relay and dies at once is dialled ever more
// rarely, also when the handshake was good each time.
func TestBackoffClimbs(t *testing.T) {
	for name, greeting := range map[string][]string{"accepts": nil, "greets": {descriptorFrame}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				enough := make(chan struct{})
				d := &dialer{dial: func(n int) (*memory, error) {
					if n == 20 {
						close(enough)
					}
					m := newMemory()
					m.say(greeting...)
					m.drop(errors.New("died"))
					return m, nil
				}}
				r := run(t, Options{Dialer: d})
				<-enough
				r.stop()
				r.wantEnd(t, nil)
				want := time.Second
				for i := range 19 {
					if pause := d.at[i+1].Sub(d.at[i]); pause <= want*3/4 || pause > want {
						t.Errorf("pause %d is %v, want up to a quarter less than %v", i+1, pause, want)
					}
					want = min(2*want, 30*time.Second)
				}
			})
		})
	}
}

func TestBackoffBeginsAnewAfterAConnectionThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{dial: func(n int) (*memory, error) {
			if n != 6 {
				return nil, errors.New("away")
			}
			m := newMemory()
			m.say(descriptorFrame)
			time.AfterFunc(30*time.Second, func() { m.drop(errors.New("died")) })
			return m, nil
		}}
		r := run(t, Options{Dialer: d})
		time.Sleep(80 * time.Second)
		r.stop()
		r.wantEnd(t, nil)
		if len(d.at) < 7 {
			t.Fatalf("%d dials", len(d.at))
		}
		if pause := d.at[6].Sub(d.at[5]); pause <= 30*time.Second || pause > 31*time.Second {
			t.Errorf("after 30 s online it is dialled %v after the last dial", pause)
		}
	})
}

// A good handshake, a refusal, at once a second dial, and a second refusal.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{dial: func(n int) (*memory, error) {
			m := newMemory()
			if n == 2 {
				m.say(descriptorFrame) // the refusal follows at once
			}
			m.drop(refusal("unauthorized"))
			return m, nil
		}}
		r := run(t, Options{Dialer: d})
		r.wantEnd(t, ErrRefused)
		if len(d.at) != 3 {
			t.Fatalf("%d dials", len(d.at))
		}
		if d.at[1].Equal(d.at[0]) || !d.at[2].Equal(d.at[1]) {
			t.Errorf("dialled at %v", d.at)
		}
		status := r.Status()
		var closed *CloseError
		if status.Phase != Refused || !errors.As(status.Err, &closed) || closed.Code != CloseUnauthorized {
			t.Errorf("%+v", status)
		}
		close(r.phases)
		var phases []Phase
		for p := range r.phases {
			phases = append(phases, p)
		}
		want := []Phase{Dialling, Waiting, Dialling, Online, Waiting, Dialling, Refused}
		if !slices.Equal(phases, want) {
			t.Errorf("the phases are %v, want %v", phases, want)
		}
	})
}
