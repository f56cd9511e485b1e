package httpapi

import (
	"bytes"
	"errors"
	"io"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

// slow is a body that stops in the middle, until it is cut off.
type slow struct {
	first   *bytes.Reader
	stopped chan struct{} // closed when all that came was read
	cut     chan struct{}
}

func newSlow(size int) *slow {
	return &slow{bytes.NewReader(make([]byte, size)), make(chan struct{}), make(chan struct{})}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.first.Len() > 0 {
		return s.first.Read(p)
	}
	close(s.stopped)
	<-s.cut
	return 0, errors.New("cut off")
}

// When bodies of strangers fill the memory, those that arrive for longest are
// cut off, and who sends at once is served.
func TestUnverifiedBodies(t *testing.T) {
	u := newUnverified(1000)
	type result struct {
		err error
		cut bool
	}
	var results []chan result
	var bodies []*slow
	for range 3 {
		s, done := newSlow(300), make(chan result, 1)
		a := u.begin(s, func() { close(s.cut) })
		go func() {
			_, err := io.ReadAll(a)
			done <- result{err, a.end()}
		}()
		<-s.stopped
		bodies, results = append(bodies, s), append(results, done)
	}
	if u.held != 900 {
		t.Fatalf("%d bytes are held, want 900", u.held)
	}
	for range 5 {
		a := u.begin(bytes.NewReader(make([]byte, 400)), func() { t.Error("what arrives at once was cut off") })
		if data, err := io.ReadAll(a); err != nil || len(data) != 400 {
			t.Errorf("read %d bytes, %v", len(data), err)
		}
		if a.end() {
			t.Error("what arrives at once was cut off")
		}
	}
	if got := <-results[0]; got.err == nil || !got.cut {
		t.Errorf("the oldest was not cut off: %+v", got)
	}
	if u.held != 600 {
		t.Errorf("%d bytes are held, want those of the other two, 600", u.held)
	}
	for i := range bodies[1:] {
		close(bodies[i+1].cut)
		if got := <-results[i+1]; got.cut {
			t.Error("more than the oldest was cut off")
		}
	}
	if u.held != 0 || u.arrives.Len() != 0 {
		t.Errorf("at the end %d bytes of %d bodies are held", u.held, u.arrives.Len())
	}
	// One that is too large for all the memory cuts itself off.
	a := u.begin(bytes.NewReader(make([]byte, 1001)), func() {})
	if _, err := io.ReadAll(a); !errors.Is(err, agentrelay.ErrBusy) || !a.end() {
		t.Errorf("a body larger than the memory answers %v", err)
	}
}
