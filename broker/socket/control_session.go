package socket

import (
	"context"
	"errors"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

const (
	// partingTimeout is how long a client that ended its requests may take to
	// read what is left for it, goodbyeTimeout how long at shutdown.
	partingTimeout = 3 * time.Second
	goodbyeTimeout = time.Second
)

// Why a connection ends, as its client is told.
const (
	reasonTooLong  = "the line is over 1048576 bytes, the most that is read; closing the connection"
	reasonShutdown = "the relay is shutting down"
)

// session is one connection. Requests are done one after the other, in the
// order of their lines, except that fire_hook runs on its own, and sends wait
// for each other only: hooks may decide on them.
type session struct {
	control *Control
	conn    *Conn
	out     *outbox
	// greeted is set once there was a good hello.
	greeted bool
	// sends are to be done in their order.
	sends chan func()
	busy  sync.WaitGroup
	// unreadable counts the lines of this connection.
	unreadable int
}

// Serve serves a connection: Serve of Options.
func (c *Control) Serve(ctx context.Context, conn *Conn) {
	s := &session{control: c, conn: conn, out: c.join(), sends: make(chan func(), maxPending)}
	s.serve(ctx)
}

// errGone is why a session's context ends when its client no longer reads.
var errGone = errors.New("the client is gone")

func (s *session) serve(outer context.Context) {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	// A client may read as late as it likes: nobody else waits for it.
	s.conn.SetWriteTimeout(0)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if s.out.write(s.conn) != nil {
			cancel(errGone)
		}
	}()
	stop := context.AfterFunc(ctx, func() {
		s.out.halt()
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // it may be closed
	})
	defer stop()
	s.busy.Go(func() {
		for send := range s.sends {
			send()
		}
	})
	tooLong := s.read(ctx)
	close(s.sends)
	s.busy.Wait()
	s.logUnreadable()
	switch {
	case tooLong:
		s.out.reply(errorReply("null", &agentrelay.Error{Code: agentrelay.CodeBodyTooLarge, Message: reasonTooLong}))
	case outer.Err() != nil && s.greeted:
		s.out.reply(errorReply("null", &agentrelay.Error{Code: agentrelay.CodeBusy, Message: reasonShutdown}))
	}
	s.part(outer)
	s.control.leave(s.out)
	<-written
	// Were it closed with the rest unread, the client could fail before it
	// sees why.
	if tooLong && s.conn.SetReadDeadline(time.Now().Add(partingTimeout)) == nil && s.conn.SetIdle(true) {
		s.conn.SkipLine()
	}
}

// part gives the client its time to read the last of it.
func (s *session) part(outer context.Context) {
	limit := partingTimeout
	if outer.Err() != nil {
		limit = goodbyeTimeout
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(limit)) // it may be closed
}

// read does what lines ask for until there are no more, or ctx ends.
func (s *session) read(ctx context.Context) (tooLong bool) {
	for {
		line, err := s.conn.ReadLine()
		if err != nil || !s.out.begin() {
			// What was sent of a line that has no end is no request.
			return errors.Is(err, ErrLineTooLong)
		}
		s.handle(ctx, line)
	}
}

// handle does what one line asks for, or has it done.
func (s *session) handle(ctx context.Context, line []byte) {
	r, err := parseControlRequest(line)
	if err != nil {
		s.noteUnreadable()
		if r.id == "" {
			s.out.skip()
			return
		}
		s.out.reply(errorReply(r.id, err))
		return
	}
	if r.method == "hello" {
		s.answer(ctx, r, s.hello)
		return
	}
	if !s.greeted {
		s.out.reply(errorReply(r.id, invalid(`say hello first: {"id":1,"method":"hello","params":{"version":1}}`)))
		return
	}
	switch r.method {
	case "subscribe", "unsubscribe":
		s.subscribe(r)
		return
	case "fire_hook":
		s.busy.Go(func() { s.answer(ctx, r, s.control.fireHook) })
		return
	case "test_connector", "idle_connector":
		s.busy.Go(func() { s.answer(ctx, r, s.control.methods[r.method]) })
		return
	case "send":
		s.sends <- func() { s.answer(ctx, r, s.control.send) } // there is room for all that began
		return
	}
	do, known := s.control.methods[r.method]
	if !known {
		s.out.reply(errorReply(r.id, &agentrelay.Error{
			Code: agentrelay.CodeNotFound, Message: "there is no method " + quoted(r.method),
		}))
		return
	}
	s.answer(ctx, r, do)
}

// method does what a request asks for.
type method func(context.Context, params) (result, error)

// answer calls a method and replies with what it returns.
func (s *session) answer(ctx context.Context, r controlRequest, do method) {
	result, err := do(ctx, r.params)
	if err != nil {
		s.control.logFailure(r.method, err)
		s.out.reply(errorReply(r.id, err))
		return
	}
	s.out.reply(result.reply(r.id))
}

// logFailure logs the cause of an internal fault, which no client is told.
func (c *Control) logFailure(method string, err error) {
	if e := agentrelay.Wrap(err); e.Err != nil && !errors.Is(err, context.Canceled) {
		c.log.Error("a request failed", "method", method, "error", err)
	}
}

// noteUnreadable counts a line that was skipped. The first of a connection is
// logged at once, the number of all at its end.
func (s *session) noteUnreadable() {
	s.control.unreadable.Add(1)
	if s.unreadable++; s.unreadable == 1 {
		s.control.log.Warn("skipped a line that cannot be read")
	}
}

func (s *session) logUnreadable() {
	if s.unreadable > 1 {
		s.control.log.Warn("skipped lines that cannot be read", "count", s.unreadable)
	}
}

// hello agrees on the version. From then on the connection is not idle.
func (s *session) hello(_ context.Context, p params) (result, error) {
	version, err := p.integer("version", 0, 1<<53)
	switch {
	case err != nil:
		return result{}, err
	case version == nil:
		return result{}, invalid(`"version" is missing; this daemon speaks %d`, ControlVersion)
	case *version != ControlVersion:
		return result{}, invalid("the app speaks protocol %d, this daemon %d; update the older one", *version, ControlVersion)
	}
	s.greeted = true
	s.conn.SetIdle(false)
	b := agentrelay.AppendString([]byte(`{"version":1,"daemon_version":`), s.control.o.Version)
	return result{"hello", append(b, '}')}, nil
}

// subscribe changes which events come.
func (s *session) subscribe(r controlRequest) {
	names, err := r.params.events()
	switch {
	case err != nil:
		s.out.reply(errorReply(r.id, err))
	case r.method == "subscribe":
		s.out.subscribe(names, okResult.reply(r.id))
	default:
		s.out.unsubscribe(names, okResult.reply(r.id))
	}
}
