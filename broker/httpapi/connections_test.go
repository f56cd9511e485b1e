package httpapi

import (
	"context"
	"net"
	"net/http"
	"slices"
	"testing"
)

// named is a connection of which only the name and the end matter.
type named struct {
	net.Conn
	name   string
	closed *[]string
}

func (n *named) Close() error {
	*n.closed = append(*n.closed, n.name)
	return nil
}

func TestConnections(t *testing.T) {
	var closed []string
	conns := map[string]*named{}
	c := NewConnections(3)
	to := func(state http.ConnState, names ...string) {
		for _, name := range names {
			if conns[name] == nil {
				conns[name] = &named{name: name, closed: &closed}
			}
			c.State(conns[name], state)
		}
	}
	want := func(names ...string) {
		t.Helper()
		if !slices.Equal(closed, names) {
			t.Fatalf("closed are %v, want %v", closed, names)
		}
	}
	to(http.StateNew, "a", "b", "c")
	want()
	verify := func(names ...string) {
		for _, name := range names {
			verified(c.Context(context.Background(), conns[name]))
		}
	}
	to(http.StateActive, "a")
	verify("a")
	to(http.StateNew, "d")
	want("b") // a is in use
	to(http.StateClosed, "b")
	to(http.StateActive, "c", "d")
	verify("c", "d", "b")
	to(http.StateNew, "e")
	want("b", "e") // all are in use
	to(http.StateClosed, "e")
	to(http.StateIdle, "d", "c")
	to(http.StateNew, "f")
	want("b", "e", "d")
	to(http.StateClosed, "d")
	to(http.StateActive, "f")
	to(http.StateNew, "g")
	want("b", "e", "d", "c")
	to(http.StateActive, "g")
	to(http.StateNew, "x")
	want("b", "e", "d", "c", "f") // its request was not verified
	to(http.StateIdle, "f")
	to(http.StateClosed, "a", "c", "f", "g", "x")
	to(http.StateNew, "h", "i", "j")
	want("b", "e", "d", "c", "f")
	if len(c.all) != 3 || c.idle.Len() != 3 {
		t.Errorf("%d connections are known, %d idle, want 3", len(c.all), c.idle.Len())
	}
}
