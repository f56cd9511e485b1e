package socket

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"
)

// MaxLine is how many bytes a line may have, without its end.
const MaxLine = 1 << 20

// ErrLineTooLong is returned by ReadLine for lines over MaxLine.
var ErrLineTooLong = errors.New("line too long")

// writeTimeout is that of a new connection.
const writeTimeout = 5 * time.Second

// Conn is a connection. One goroutine may read from it, and one write.
type Conn struct {
	server *Server
	conn   *net.UnixConn
	r      *bufio.Reader
	// within is set when a line that was too long has not ended yet.
	within bool
	// writeTimeout is how long the peer may take to make room for one write;
	// 0 is as long as it likes, or until SetWriteDeadline's.
	writeTimeout time.Duration

	// idle and since, when it became so, are the server's.
	idle  bool
	since time.Time
}

func newConn(s *Server, conn *net.UnixConn) *Conn {
	return &Conn{server: s, conn: conn, r: bufio.NewReader(conn), idle: true, since: time.Now(), writeTimeout: writeTimeout}
}

// SetIdle says whether the connection waits for its peer, so that it may be
// closed at any moment. It does when it is new. It reports whether the
// connection is open: if not, nobody waits for an answer.
func (c *Conn) SetIdle(idle bool) (open bool) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.idle != idle {
		c.idle, c.since = idle, time.Now()
	}
	if idle && s.ending {
		s.drop(c)
	}
	return s.conns[c]
}

// SetReadDeadline bounds the reading of lines. The zero time is none.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// ReadLine returns the next line without its newline; the memory is the
// caller's. The last line needs no newline. After the last line the error is
// io.EOF. Where reading fails within a line, what was read comes with the
// error. After ErrLineTooLong the rest of that line is what is read next.
func (c *Conn) ReadLine() ([]byte, error) {
	var line []byte
	for {
		part, err := c.r.ReadSlice('\n')
		line = append(line, part...)
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		switch {
		case len(line) > MaxLine:
			c.within = err != nil
			return nil, ErrLineTooLong
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return line, err
		}
	}
}

// SkipLine reads the rest of a line that was too long, as far as it comes.
func (c *Conn) SkipLine() {
	for c.within {
		_, err := c.r.ReadSlice('\n')
		c.within = errors.Is(err, bufio.ErrBufferFull)
	}
}

// SetWriteTimeout says how long the peer may take to make room for one write:
// 5 s for a new connection, any time if d is 0. Nobody may write meanwhile.
func (c *Conn) SetWriteTimeout(d time.Duration) { c.writeTimeout = d }

// SetWriteDeadline bounds writes, also the one under way, of a connection whose
// write timeout is 0. The zero time is none.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.conn.SetWriteDeadline(t) }

// Write writes b as one, unless the peer does not read in time.
func (c *Conn) Write(b []byte) (int, error) {
	if c.writeTimeout > 0 {
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.writeTimeout)); err != nil {
			return 0, err
		}
	}
	return c.conn.Write(b)
}
