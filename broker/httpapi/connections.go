package httpapi

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// Connections bounds how many connections a server holds. At the limit the
// oldest one without a request in flight is closed for a new one: one that
// never sent a request, or is still sending its headers, or is kept open after
// an answer; and if there is none, the oldest one whose request is not verified
// yet. If all have requests that are, the new one is closed.
type Connections struct {
	limit int
	mu    sync.Mutex
	// all has the place of each connection in idle or unverified, nil for those
	// whose request was verified. The oldest are first.
	all              map[net.Conn]*place
	idle, unverified list.List
}

// place is where a connection stands in a list.
type place struct {
	in *list.List
	at *list.Element
}

// NewConnections returns a bound for one server, whose ConnState must be State
// and whose ConnContext must be Context.
func NewConnections(limit int) *Connections {
	return &Connections{limit: limit, all: map[net.Conn]*place{}}
}

type connectionKey struct{}

// connection is what a request knows of the connection on which it came.
type connection struct {
	all  *Connections
	conn net.Conn
}

// Context lets requests tell that they are verified (http.Server.ConnContext).
func (c *Connections) Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection{c, conn})
}

// verified tells that it is known who sent the request of a context.
func verified(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(connection); ok {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		if _, known := c.all.all[c.conn]; known {
			c.all.put(c.conn, nil)
		}
	}
}

// State follows a connection (http.Server.ConnState).
func (c *Connections) State(conn net.Conn, state http.ConnState) {
	if surplus := c.follow(conn, state); surplus != nil {
		_ = surplus.Close()
	}
}

// follow returns a connection to close, if there is one too many.
func (c *Connections) follow(conn net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.all[conn]; !known && state != http.StateNew {
		return nil // it was closed
	}
	switch state {
	case http.StateNew:
		if len(c.all) >= c.limit {
			if surplus = c.oldest(); surplus == nil {
				return conn
			}
		}
		c.put(conn, &c.idle)
	case http.StateIdle:
		c.put(conn, &c.idle)
	case http.StateActive:
		c.put(conn, &c.unverified)
	case http.StateHijacked, http.StateClosed:
		c.put(conn, nil)
		delete(c.all, conn)
	}
	return surplus
}

// put makes a connection the youngest of a list, or of none.
func (c *Connections) put(conn net.Conn, in *list.List) {
	if before := c.all[conn]; before != nil {
		before.in.Remove(before.at)
	}
	c.all[conn] = nil
	if in != nil {
		c.all[conn] = &place{in, in.PushBack(conn)}
	}
}

// oldest takes out the connection to close; nil if there is none.
func (c *Connections) oldest() net.Conn {
	for _, in := range []*list.List{&c.idle, &c.unverified} {
		if first := in.Front(); first != nil {
			conn := in.Remove(first).(net.Conn)
			delete(c.all, conn)
			return conn
		}
	}
	return nil
}
