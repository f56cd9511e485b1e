package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// WebSocketOptions are the times and sizes of a WebSocket connection. Zero
// values mean the defaults.
type WebSocketOptions struct {
	// PingEvery is how often the peer is pinged, by default 30 s, and
	// PingTimeout how long it has to answer, by default 60 s. Time in which
	// this end does not read does not count.
	PingEvery, PingTimeout time.Duration
	// ReadAhead is how many bytes of frames are read before Receive asks for
	// them, by default 1 MiB. Beyond that reading stops before the next
	// message, and pings that come before it are still answered.
	ReadAhead int
}

func (o WebSocketOptions) withDefaults() WebSocketOptions {
	if o.PingEvery <= 0 {
		o.PingEvery = 30 * time.Second
	}
	if o.PingTimeout <= 0 {
		o.PingTimeout = 60 * time.Second
	}
	if o.ReadAhead <= 0 {
		o.ReadAhead = 1 << 20
	}
	return o
}

// received is a frame, or why one was skipped.
type received struct {
	frame []byte
	err   error
}

// webSocket is frames over a WebSocket, each sent as a text message. It reads
// on its own, since only who reads sees pings and the end of a connection.
type webSocket struct {
	conn *websocket.Conn
	o    WebSocketOptions

	// life ends when the connection does; its cause says why, if that was
	// this end's doing.
	life  context.Context
	end   context.CancelCauseFunc
	parts sync.WaitGroup

	mu      sync.Mutex
	ahead   []received
	bytes   int
	changed chan struct{} // closed and replaced when ahead changes

	done chan struct{}
	err  error // why it is over; set before done is closed

	// stalls is odd while reading has stopped.
	stalls atomic.Int64
}

// NewWebSocket makes a FrameIO of a WebSocket connection, of either end. It
// takes the connection over.
func NewWebSocket(conn *websocket.Conn, o WebSocketOptions) FrameIO {
	conn.SetReadLimit(-1) // FrameReader has its own
	w := &webSocket{conn: conn, o: o.withDefaults(), changed: make(chan struct{}), done: make(chan struct{})}
	w.life, w.end = context.WithCancelCause(context.Background())
	w.parts.Go(w.read)
	w.parts.Go(w.ping)
	return w
}

// sendGrace is how long a failed write waits for the reader to learn why the
// peer ended the connection.
const sendGrace = time.Second

func (w *webSocket) Send(ctx context.Context, frame []byte) error {
	if len(frame)+1 > MaxFrame {
		return fmt.Errorf("%w: %w", ErrNotSent, ErrFrameTooLarge)
	}
	select {
	case <-w.done:
		return fmt.Errorf("%w: %w", ErrNotSent, w.err)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	line := append(append(make([]byte, 0, len(frame)+1), frame...), '\n')
	err := w.conn.Write(ctx, websocket.MessageText, line)
	if err == nil {
		return nil
	}
	timer := time.NewTimer(sendGrace)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.end(fmt.Errorf("write a frame: %w", err))
	}
	return fmt.Errorf("write a frame: %w", err)
}

func (w *webSocket) Receive(ctx context.Context) ([]byte, error) {
	for {
		w.mu.Lock()
		if len(w.ahead) > 0 {
			next := w.ahead[0]
			w.ahead = w.ahead[1:]
			w.bytes -= len(next.frame)
			w.wake()
			w.mu.Unlock()
			return next.frame, next.err
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.done:
			if w.empty() {
				return nil, w.err
			}
		}
	}
}

func (w *webSocket) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ahead) == 0
}

// wake tells of a change; w.mu is held.
func (w *webSocket) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *webSocket) Done() <-chan struct{} { return w.done }

func (w *webSocket) Close(ctx context.Context, code int, reason string) {
	if ctx.Err() != nil {
		w.end(net.ErrClosed)
	}
	// The context of a read that ends closes the connection, and so ends the
	// wait for the peer's answer.
	unhook := context.AfterFunc(ctx, func() { w.end(net.ErrClosed) })
	if w.life.Err() != nil {
		_ = w.conn.CloseNow()
	} else {
		_ = w.conn.Close(websocket.StatusCode(code), reason)
	}
	unhook()
	w.end(net.ErrClosed)
	w.parts.Wait()
}

// read reads until the connection is over.
func (w *webSocket) read() {
	err := w.readMessages()
	var closed websocket.CloseError
	if cause := context.Cause(w.life); errors.As(err, &closed) {
		err = &CloseError{Code: int(closed.Code), Reason: closed.Reason}
	} else if cause != nil {
		err = cause
	}
	w.err = err
	close(w.done)
	w.end(err)
	_ = w.conn.CloseNow()
}

func (w *webSocket) readMessages() error {
	var frames FrameReader
	part := make([]byte, 16<<10)
	for {
		_, message, err := w.conn.Reader(w.life)
		if err != nil {
			return err
		}
		for last := false; !last; {
			if err := w.room(); err != nil {
				return err
			}
			n, err := message.Read(part)
			if last = errors.Is(err, io.EOF); err != nil && !last {
				return err
			}
			frames.Feed(part[:n], last, w.put)
		}
	}
}

func (w *webSocket) put(frame []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead = append(w.ahead, received{frame, err})
	w.bytes += len(frame)
	w.wake()
}

// maxAhead is how many frames are read ahead, however small they are.
const maxAhead = 4096

// room waits until more may be read.
func (w *webSocket) room() error {
	for stalled := false; ; {
		w.mu.Lock()
		free, changed := w.bytes < w.o.ReadAhead && len(w.ahead) < maxAhead, w.changed
		w.mu.Unlock()
		if free {
			if stalled {
				w.stalls.Add(1)
			}
			return nil
		}
		if !stalled {
			stalled = true
			w.stalls.Add(1)
		}
		select {
		case <-changed:
		case <-w.life.Done():
			return context.Cause(w.life)
		}
	}
}

// ping ends the connection when the peer does not answer.
func (w *webSocket) ping() {
	for w.pause(w.o.PingEvery) {
		if !w.answers() && w.life.Err() == nil {
			w.end(fmt.Errorf("the peer answered no ping within %v", w.o.PingTimeout))
			return
		}
	}
}

// answers pings until the peer answers or its time is up.
func (w *webSocket) answers() bool {
	for {
		stalls := w.stalls.Load()
		ctx, cancel := context.WithTimeout(w.life, w.o.PingTimeout)
		err := w.conn.Ping(ctx)
		// A ping that could not even be written, behind a large frame say, is
		// tried again.
		for err != nil && ctx.Err() == nil && w.pause(w.o.PingTimeout/60) {
			err = w.conn.Ping(ctx)
		}
		cancel()
		if err == nil {
			return true
		}
		if w.life.Err() != nil || stalls%2 == 0 && stalls == w.stalls.Load() {
			return false
		}
	}
}

// pause reports whether the connection lasted through it.
func (w *webSocket) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.life.Done():
		return false
	}
}
