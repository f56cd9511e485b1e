package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// controlVersion is the version of the control socket's protocol.
const controlVersion = 1

// Control drives the broker on this machine through its control socket
// (PROTOCOL.md, "The control socket"). It needs no secret: the broker's own
// user and root may connect. Its methods may be called at the same time from
// several goroutines.
//
// What the broker refuses comes back as *agentrelay.Error. Where no broker
// answers, or its connection breaks, the error is ErrUnreachable; a Control
// whose connection broke stays so. A call whose context ends while it is under
// way may or may not have been done.
type Control struct {
	path    string
	version string
	conn    *controlConn
	// writing is held by who writes a line.
	writing chan struct{}

	mu      sync.Mutex
	lastID  int64
	waiting map[int64]chan<- controlLine
	// ended is closed when the connection is no longer read; err is why.
	ended chan struct{}
	err   error
}

// DialControl connects to the control socket at path.
func DialControl(ctx context.Context, path string) (*Control, error) {
	conn, version, err := dialControl(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Control{
		path: path, version: version, conn: conn, writing: make(chan struct{}, 1),
		lastID: helloID, waiting: map[int64]chan<- controlLine{}, ended: make(chan struct{}),
	}
	go c.read()
	return c, nil
}

// Version is that of the broker's program.
func (c *Control) Version() string { return c.version }

// Close ends the connection, and calls that are under way. It returns when
// nothing is left of it.
func (c *Control) Close() error {
	err := c.conn.Close()
	<-c.ended
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// read hands replies to those who wait for them.
func (c *Control) read() {
	var line controlLine
	var err error
	for {
		if line, err = c.conn.next(); err != nil {
			break
		}
		c.mu.Lock()
		waiting := c.waiting[line.id]
		delete(c.waiting, line.id)
		c.mu.Unlock()
		if waiting != nil {
			waiting <- line
		}
	}
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	close(c.ended)
}

// call makes a request and reads the data of its result, which must be of the
// given type. data may be nil.
func (c *Control) call(ctx context.Context, method string, params any, kind string, data any) error {
	reply := make(chan controlLine, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.waiting[id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.write(ctx, id, method, params); err != nil {
		return err
	}
	select {
	case line := <-reply:
		return c.conn.result(line, kind, data)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
	}
	select {
	case line := <-reply: // it came last
		return c.conn.result(line, kind, data)
	default:
		return c.err
	}
}

// write sends a request. One that ctx interrupts breaks the connection, since
// half a line cannot be taken back.
func (c *Control) write(ctx context.Context, id int64, method string, params any) error {
	line, err := controlRequest(id, method, params)
	if err != nil {
		return err
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return c.err
	}
	defer func() { <-c.writing }()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	interrupted := interruptible(ctx, c.conn.SetWriteDeadline)
	_, err = c.conn.Write(line)
	if wasInterrupted := interrupted(); err == nil {
		return nil
	} else if wasInterrupted {
		_ = c.conn.Close()
		return ctx.Err()
	}
	// What the broker said before it closed the connection says more.
	_ = c.conn.CloseWrite()
	<-c.ended
	return c.err
}

// controlConn is a connection after a good hello. One goroutine may read.
type controlConn struct {
	*net.UnixConn
	path  string
	lines *bufio.Scanner
	// farewell is why the broker ends the connection, as it says.
	farewell string
}

// controlLine is a reply or an event.
type controlLine struct {
	Kind string `json:"kind"`
	// ID is that of a reply, a number or null, or of an event's message.
	ID json.RawMessage `json:"id"`
	// Result or Error is that of a reply.
	Result *struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	} `json:"result"`
	Error       *string         `json:"error"`
	Code        agentrelay.Code `json:"code"`
	Suggestions []string        `json:"suggestions"`

	// id is a reply's, 0 if it answers nothing; event is an event's line.
	id    int64
	event json.RawMessage
}

// controlRequest is a request's line. Params that are a json.RawMessage are sent
// as they are, but for line breaks, which JSON has between values only.
func controlRequest(id int64, method string, params any) ([]byte, error) {
	b := strconv.AppendInt([]byte(`{"id":`), id, 10)
	b = agentrelay.AppendString(append(b, `,"method":`...), method)
	if params != nil {
		raw, isRaw := params.(json.RawMessage)
		var err error
		if !isRaw {
			raw, err = json.Marshal(params)
		}
		if err != nil || !json.Valid(raw) {
			return nil, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: "the request is not valid JSON", Err: err}
		}
		b = append(append(b, `,"params":`...), raw...)
	}
	b = append(b, '}')
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '\n'), nil
}

// helloID is the id of the request that says hello.
const helloID = 1

// dialControl connects and says hello.
func dialControl(ctx context.Context, path string) (conn *controlConn, version string, err error) {
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		return nil, "", &fault{
			text: fmt.Sprintf("no broker answers at the control socket %s; start it with `agent-relay setup start`", path),
			kind: ErrUnreachable, cause: err,
		}
	}
	conn = &controlConn{UnixConn: dialled.(*net.UnixConn), path: path, lines: bufio.NewScanner(dialled)}
	conn.lines.Buffer(nil, DefaultMaxAnswerBytes)
	var hello struct {
		Version       int    `json:"version"`
		DaemonVersion string `json:"daemon_version"`
	}
	err = conn.ask(ctx, helloID, "hello", map[string]int{"version": controlVersion}, "hello", &hello)
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	return conn, hello.DaemonVersion, nil
}

// ask makes a request on a connection that nobody else uses.
func (c *controlConn) ask(ctx context.Context, id int64, method string, params any, kind string, data any) error {
	line, err := controlRequest(id, method, params)
	if err != nil {
		return err
	}
	interrupted := interruptible(ctx, c.SetDeadline)
	_, _ = c.Write(line) // if it failed, so does reading
	reply, err := c.next()
	if interrupted() && err != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return c.result(reply, kind, data)
}

// interruptible has the end of ctx set a deadline that is over, until the
// returned function is called, which tells whether it did.
func interruptible(ctx context.Context, setDeadline func(time.Time) error) (interrupted func() bool) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = setDeadline(time.Unix(1, 0))
		close(done)
	})
	return func() bool {
		if stop() {
			return false
		}
		<-done
		_ = setDeadline(time.Time{})
		return true
	}
}

// next reads a line. Its error is fit to be returned.
func (c *controlConn) next() (controlLine, error) {
	for c.lines.Scan() {
		var line controlLine
		text := c.lines.Bytes()
		if json.Unmarshal(text, &line) != nil {
			return line, c.stranger()
		}
		switch line.Kind {
		case "event":
			line.event = append(json.RawMessage{}, text...)
			return line, nil
		case "reply":
			if json.Unmarshal(line.ID, &line.id) == nil && line.id > 0 {
				return line, nil
			}
			if line.Error != nil {
				c.farewell = *line.Error
			}
		case "":
			return line, c.stranger()
		}
	}
	text := fmt.Sprintf("the broker closed the connection to its control socket %s", c.path)
	if c.farewell != "" {
		text += ": " + c.farewell
	}
	return controlLine{}, &fault{text: text, kind: ErrUnreachable, cause: c.lines.Err()}
}

func (c *controlConn) stranger() error {
	return &fault{text: fmt.Sprintf("something else answers at %s; it is no control socket", c.path), kind: ErrNotRelay}
}

// result reads what a request is answered with.
func (c *controlConn) result(line controlLine, kind string, data any) error {
	switch {
	case line.Error != nil:
		return &agentrelay.Error{Code: line.Code, Message: *line.Error, Suggestions: line.Suggestions}
	case line.Result == nil || line.Result.Type != kind:
		return c.stranger()
	case data == nil || len(line.Result.Data) == 0:
		return nil
	case json.Unmarshal(line.Result.Data, data) != nil:
		return c.stranger()
	}
	return nil
}
