// Package socket serves the relay's Unix sockets: JSON lines, for programs of
// the same user on the same machine. Listen and Server are what every such
// socket needs; HookHandler is what the hook socket makes of it, and Control
// what the control socket does.
//
// A socket has mode 0600, and lies in a directory that is made with mode 0700
// if it is missing. Beside it lies a lock file, PATH.lock, which stays when
// the relay ends. What is found at PATH is removed only if it is a socket on
// which nobody answers. Whoever connects must be the same user or root, as the
// system says; others are disconnected.
//
// Each connection has a goroutine. Their number is bounded: when one more
// comes, the one that has been idle longest is closed for it, idle being all
// that its handler calls so. Where none is idle, the new one is closed.
//
// Windows is not supported: Listen returns errors.ErrUnsupported there.
package socket

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// ErrInUse is returned by Listen when somebody else has the socket.
var ErrInUse = errors.New("somebody listens there already; stop it, or choose another socket")

// Options say where to listen and what to do with connections.
type Options struct {
	// Path is where the socket is to be.
	Path string
	// Name is what the log calls the socket.
	Name string
	// Serve serves one connection, which is closed when it returns. It is to
	// return soon after its context ended, which it does when Run's ends.
	Serve func(context.Context, *Conn)
	// MaxConns is how many connections there may be; 256 if 0.
	MaxConns int
	// Log is told what goes wrong; nil is nobody.
	Log *slog.Logger

	// allow decides who may connect; nil is the same user and root.
	allow func(uid uint32) bool
}

const defaultMaxConns = 256

// errShutdown is why the contexts of connections end.
var errShutdown = errors.New("the relay is shutting down")

// Server is a socket that is listened on.
type Server struct {
	o     Options
	bound *bound

	mu     sync.Mutex
	conns  map[*Conn]bool
	ending bool
	warned time.Time
	busy   sync.WaitGroup
}

// Listen binds the socket. From then on connections wait to be served by Run.
// The caller calls either Run or Close.
func Listen(o Options) (*Server, error) {
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.allow == nil {
		o.allow = func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
	}
	b, err := bind(o.Path)
	if err != nil {
		return nil, err
	}
	o.Log = o.Log.With("socket", o.Name)
	return &Server{o: o, bound: b, conns: map[*Conn]bool{}}, nil
}

// Path is where the socket is, as an absolute path.
func (s *Server) Path() string { return s.bound.path }

// Close removes the socket, if it is still this one, and frees its place.
func (s *Server) Close() error { return s.bound.close() }

// Run serves until ctx ends. It then removes the socket, closes idle
// connections, ends the contexts of the others, and returns when all of them
// are gone.
func (s *Server) Run(ctx context.Context) error {
	serving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(errShutdown) })
	defer stop()
	closed := make(chan error, 1)
	context.AfterFunc(serving, func() { closed <- s.end() })
	err := s.accept(serving)
	cancel(errShutdown)
	s.busy.Wait()
	return errors.Join(err, <-closed)
}

// end stops accepting, and closes what is idle.
func (s *Server) end() error {
	err := s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for c := range s.conns {
		if c.idle {
			s.drop(c)
		}
	}
	return err
}

const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// accept serves connections until the listener is closed. When one cannot be
// accepted, for want of descriptors for instance, it tries again.
func (s *Server) accept(ctx context.Context) error {
	pause := time.Duration(0)
	for {
		conn, err := s.bound.listener.AcceptUnix()
		if err == nil {
			pause = 0
			s.welcome(ctx, conn)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
		s.o.Log.Warn("cannot accept a connection", "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// welcome serves a connection if its peer may connect and there is room.
func (s *Server) welcome(ctx context.Context, conn *net.UnixConn) {
	uid, err := peerUser(conn)
	if err != nil || !s.o.allow(uid) {
		s.o.Log.Warn("disconnected another user", "uid", uid, "error", err)
		_ = conn.Close()
		return
	}
	c := s.admit(conn)
	if c == nil {
		_ = conn.Close()
		return
	}
	s.busy.Go(func() {
		defer s.leave(c)
		s.o.Serve(ctx, c)
	})
}

// admit makes room for a connection; nil if there is none. A new connection
// is idle.
func (s *Server) admit(conn *net.UnixConn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return nil
	}
	if len(s.conns) >= s.o.MaxConns && !s.evict() {
		s.warn("disconnected: too many connections are busy")
		return nil
	}
	c := newConn(s, conn)
	s.conns[c] = true
	return c
}

// evict closes the connection that has been idle longest, if there is one.
func (s *Server) evict() bool {
	var oldest *Conn
	for c := range s.conns {
		if c.idle && (oldest == nil || c.since.Before(oldest.since)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	s.drop(oldest)
	s.warn("closed the connection that was idle longest: there are too many")
	return true
}

// warn logs what may happen often, once a minute.
func (s *Server) warn(text string) {
	if now := time.Now(); s.warned.IsZero() || now.Sub(s.warned) >= time.Minute {
		s.warned = now
		s.o.Log.Warn(text, "max", s.o.MaxConns)
	}
}

func (s *Server) leave(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

// drop closes a connection, which from then on no longer counts.
func (s *Server) drop(c *Conn) {
	delete(s.conns, c)
	_ = c.conn.Close()
}
