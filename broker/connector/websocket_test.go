package connector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// gone is what a peer's read or write returns once the relay has left; that is
// how these scripts end.
func gone(error) error { return nil }

// untilGone reads until the relay leaves, and lets it.
func (p *peer) untilGone() error {
	for {
		frame, err := p.hear()
		if err != nil {
			return gone(err)
		}
		if frame == idleFrame {
			_ = p.say(`{"type":"going_idle_ack"}`)
		}
	}
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error {
		if payload, err := VerifyToken(p.token, []string{"old", testSecret}, time.Now()); payload != "gw" || err != nil {
			return fmt.Errorf("the token is of %q: %w", payload, err)
		}
		// All are sent without waiting.
		if err := p.want(
			`{"type":"hello","platform":"chat","botId":"1"}`,
			`{"type":"hello","platform":"chat","botId":"2"}`,
			`{"type":"hello","platform":"mail","botId":"3"}`,
		); err != nil {
			return err
		}
		err := p.say(`{"type":"descriptor","descriptor":{"contract_version":1,"platform":"mail"}}`, descriptorFrame)
		return errors.Join(err, p.untilGone())
	})
	r := runTo(t, c.url, Options{Identities: []Identity{{"chat", "1"}, {"chat", "2"}, {"mail", "3"}}})
	for _, platform := range []string{"chat", "mail"} {
		if d, err := r.Await(within(t), platform); err != nil || d.Platform != platform {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// Frames arrive however they are put into messages, and each that is stored is
// acknowledged once, in order.
func TestFramesOverTheWire(t *testing.T) {
	t.Parallel()
	event := func(n int) string { return inbound(n, fmt.Sprintf("b%d", n)) }
	word := `{"type":"inbound","event":{"text":"ü🔌"},"bufferId":"b6"}`
	half := strings.Index(word, "🔌") + 2
	large := func(n, size int) string {
		frame := fmt.Sprintf(`{"type":"inbound","bufferId":"b%d","event":{"text":""}}`, n)
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
	}
	text, binary := websocket.MessageText, websocket.MessageBinary
	c := startConnector(t, func(_ int, p *peer) error {
		err := p.greet()
		for _, m := range []struct {
			typ     websocket.MessageType
			message string
		}{
			{text, event(1) + "\n" + event(2) + "\r\n\n" + `{"type":"brand_new"}` + "\n" + event(3)[:20]},
			{text, event(3)[20:] + "\n"},
			{text, event(4)},
			{binary, event(5) + "\n"},
			{binary, word[:half]},
			{binary, word[half:] + "\n"},
			{text, "nonsense\n" + event(7) + "\n{\"type\":\n" + event(8) + "\n"},
			{text, "nonsense"},
			{text, large(9, MaxFrame) + "\n"},
			{text, large(10, MaxFrame+1) + "\n" + event(11)},
			{text, `{"type":"inbound","event":"no object","bufferId":"b12"}`},
		} {
			err = errors.Join(err, p.write(m.typ, m.message))
		}
		var acks []string
		for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12} {
			acks = append(acks, ackFrame(fmt.Sprintf("b%d", n)))
		}
		return errors.Join(err, p.want(acks...), p.say(event(13)), p.want(ackFrame("b13")), p.untilGone())
	})
	var k taken
	r := runTo(t, c.url, Options{Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
		if f.BufferID == "b6" && string(f.Event) != `{"text":"ü🔌"}` || f.BufferID == "b9" && len(f.Event) < MaxFrame-100 {
			return Permanent(fmt.Errorf("it is %d bytes", len(f.Event)))
		}
		k.add(f.BufferID)
		return nil
	}}})
	r.until(t, "13 frames are acknowledged", func(s Status) bool { return s.Acked == 12 })
	k.want(t, "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b11", "b13")
	if s := r.Status(); s.BadFrames != 4 || s.OtherFrames != 1 || s.SetAside != 1 || s.Connections != 1 {
		t.Errorf("%+v", s)
	}
}

// The largest action that fits goes out whole, and one byte more does not.
func TestLargestOutbound(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error {
		if err := p.greet(); err != nil {
			return err
		}
		raw, err := p.hear()
		if err != nil {
			return err
		}
		frame, err := ParseFrame([]byte(raw))
		if err != nil {
			return err
		}
		result := Result{Success: true, MessageID: fmt.Sprint(len(raw)), Raw: nil}
		return errors.Join(p.say(string(OutboundResult{frame.(Outbound).RequestID, result}.AppendJSON(nil))), p.untilGone())
	})
	r := runTo(t, c.url, Options{})
	if _, err := r.Await(within(t), "chat"); err != nil {
		t.Fatal(err)
	}
	request := fmt.Sprintf("%s-%d", r.prefix, 2)
	action := Action{Op: OpSend, ChatID: "c"}
	action.Content = strings.Repeat("x", MaxFrame-1-len(Outbound{request, action, bot}.AppendJSON(nil)))
	over := action
	over.Content += "x"
	if _, err := r.Send(within(t), over, bot); !errors.Is(err, ErrFrameTooLarge) || errors.Is(err, ErrOffline) {
		t.Errorf("a byte more: %v", err)
	}
	if got, err := r.Send(within(t), action, bot); err != nil || got.MessageID != fmt.Sprint(MaxFrame-1) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every dial has a token of its own. A refusal before any descriptor is tried
// again, one after a handshake too, and an expired token is never the end.
func TestTokensRefusedOverTheWire(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tokens := map[string]bool{}
	refuse := func(p *peer, reason string) error { return gone(p.Close(CloseUnauthorized, reason)) }
	c := startConnector(t, func(n int, p *peer) error {
		mu.Lock()
		if tokens[p.token] || p.token == "" {
			t.Errorf("dial %d has the token of another", n)
		}
		tokens[p.token] = true
		mu.Unlock()
		switch n {
		case 1, 2, 5:
			return refuse(p, map[int]string{1: "unauthorized", 2: "expired", 5: "expired"}[n])
		case 3:
			return errors.Join(p.greet(), refuse(p, "unauthorized"))
		case 4:
			return errors.Join(p.greet(), refuse(p, "expired"))
		case 6:
			return errors.Join(p.greet(), refuse(p, "unauthorized"))
		default:
			return refuse(p, "unauthorized")
		}
	})
	r := run(t, Options{Dialer: dialTo(t, c.url, WebSocketOptions{}), Reconnect: ReconnectPolicy{First: time.Millisecond, Max: time.Millisecond}})
	r.wantEnd(t, ErrRefused)
	if n := c.dials.Load(); n != 7 {
		t.Errorf("%d dials", n)
	}
	var closed *CloseError
	if err := r.Status().Err; !errors.As(err, &closed) || *closed != (CloseError{CloseUnauthorized, "unauthorized"}) {
		t.Errorf("%v", err)
	}
}

func TestDeathBetweenOutboundAndResult(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(n int, p *peer) error {
		err := p.greet()
		if n > 1 {
			return errors.Join(err, p.untilGone())
		}
		_, heard := p.hear()
		return errors.Join(err, heard)
	})
	r := runTo(t, c.url, Options{})
	if _, err := r.Await(within(t), "chat"); err != nil {
		t.Fatal(err)
	}
	got, err := r.Send(within(t), typing, bot)
	if err != nil || got.Success || !got.Ambiguous || got.Error != errLost {
		t.Errorf("%+v, %v", got, err)
	}
	r.until(t, "it is online again", func(s Status) bool { return s.Connections == 2 })
}

// While the handler is stuck and everything is full, reading stops; pings that
// come before the next message are answered all the same, and the relay's own
// pings, whose answers it does not read, are no reason to leave.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	const events = 50
	var pings atomic.Int64
	pinged := make(chan struct{})
	release := make(chan struct{})
	o := websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool { pings.Add(1); return true }}
	c := startConnectorWith(t, o, func(_ int, p *peer) error {
		heard := make(chan error, 1)
		var acks []string
		for n := range events {
			acks = append(acks, ackFrame(fmt.Sprintf("b%d", n)))
		}
		if err := p.greet(); err != nil {
			return err
		}
		go func() { heard <- errors.Join(p.want(acks...), p.untilGone()) }()
		// As much as is read while the handler is stuck: one is with it, one in
		// the queue, one in the reader's hand, the rest is read ahead.
		for n := range 10 {
			if err := p.say(inbound(n, fmt.Sprintf("b%d", n))); err != nil {
				return err
			}
		}
		if err := p.Ping(p.ctx); err != nil {
			return fmt.Errorf("a ping was not answered: %w", err)
		}
		close(pinged)
		// And then more than that.
		for n := 10; n < events; n++ {
			if err := p.say(inbound(n, fmt.Sprintf("b%d", n))); err != nil {
				return err
			}
		}
		return <-heard
	})
	var k taken
	d := dialTo(t, c.url, WebSocketOptions{PingEvery: time.Millisecond, PingTimeout: 50 * time.Millisecond, ReadAhead: 1000})
	stalled := make(chan *webSocket, 1)
	r := runTo(t, c.url, Options{
		Dialer: spying{d, stalled},
		Limits: Limits{QueueFrames: 1},
		Handlers: Handlers{Inbound: func(_ context.Context, f Inbound) error {
			<-release
			k.add(f.BufferID)
			return nil
		}},
	})
	<-pinged
	w := <-stalled
	r.until(t, "reading has stopped", func(Status) bool { return w.stalls.Load()%2 == 1 })
	n := pings.Load()
	// A second ping while it is stopped means that the first had its time.
	r.until(t, "the relay pings on", func(Status) bool { return pings.Load() >= n+3 })
	if s := r.Status(); s.Phase != Online || s.Acked != 0 {
		t.Errorf("%+v", s)
	}
	close(release)
	r.until(t, "all is acknowledged", func(s Status) bool { return s.Acked == events })
	if s := r.Status(); s.Connections != 1 {
		t.Errorf("%+v", s)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, id := range k.got {
		if id != fmt.Sprintf("b%d", n) {
			t.Fatalf("event %d is %s", n, id)
		}
	}
}

// spying shows the connection that a dialer made.
type spying struct {
	Dialer
	made chan *webSocket
}

func (s spying) Dial(ctx context.Context) (FrameIO, bool, error) {
	conn, authenticated, err := s.Dialer.Dial(ctx)
	if err == nil {
		s.made <- conn.(*webSocket)
	}
	return conn, authenticated, err
}

// A peer that answers no ping is left.
func TestPingTimeout(t *testing.T) {
	t.Parallel()
	again := make(chan struct{})
	o := websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool { return false }}
	c := startConnectorWith(t, o, func(n int, p *peer) error {
		if n == 2 {
			close(again)
		}
		return gone(errors.Join(p.greet(), p.untilGone())) // the third is cut anywhere
	})
	r := runTo(t, c.url, Options{Dialer: dialTo(t, c.url, WebSocketOptions{PingEvery: time.Millisecond, PingTimeout: 30 * time.Millisecond})})
	select {
	case <-again:
	case <-within(t).Done():
		t.Fatalf("it stays; %+v", r.Status())
	}
}

// The leave over a real connection, with what is under way.
func TestGoingIdleOverTheWire(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	c := startConnector(t, func(_ int, p *peer) error {
		err := errors.Join(p.greet(), p.want(idleFrame), p.say(inbound(1, "b1")), p.want(ackFrame("b1")), p.say(`{"type":"going_idle_ack"}`))
		_, end := p.hear()
		closed <- end
		return err
	})
	r := run(t, Options{
		Dialer:   dialTo(t, c.url, WebSocketOptions{}),
		Handlers: Handlers{Inbound: func(context.Context, Inbound) error { return nil }},
	})
	if _, err := r.Await(within(t), "chat"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.wantEnd(t, nil)
	if err := <-closed; websocket.CloseStatus(err) != CloseGoingAway {
		t.Errorf("the connector sees %v", err)
	}
}

// What a connection does at its end, without a transport around it.
func TestWebSocketEnds(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error {
		err := p.say(`{"n":1}`, "nonsense", `{"n":2}`)
		return errors.Join(err, gone(p.Close(4000, "enough")))
	})
	conn, _, err := dialTo(t, c.url, WebSocketOptions{}).Dial(within(t))
	if err != nil {
		t.Fatal(err)
	}
	<-conn.Done()
	if err := conn.Send(within(t), []byte(`{}`)); !errors.Is(err, ErrNotSent) {
		t.Errorf("after the end: %v", err)
	}
	var got []string
	var end error
	for end == nil {
		frame, err := conn.Receive(within(t))
		if err != nil && !errors.Is(err, ErrBadFrame) {
			end = err
		} else {
			got = append(got, string(frame))
		}
	}
	if !slices.Equal(got, []string{`{"n":1}`, "", `{"n":2}`}) {
		t.Errorf("received %q", got)
	}
	var closed *CloseError
	if !errors.As(end, &closed) || *closed != (CloseError{4000, "enough"}) {
		t.Errorf("the end is %v", end)
	}
	conn.Close(within(t), CloseNormal, "")
	conn.Close(within(t), CloseNormal, "")
}

func TestWebSocketRefusesToSend(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error { return p.untilGone() })
	conn, _, err := dialTo(t, c.url, WebSocketOptions{}).Dial(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(within(t), CloseNormal, "")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := conn.Send(ended, []byte(`{}`)); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := conn.Send(t.Context(), make([]byte, MaxFrame)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := conn.Receive(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-conn.Done():
		t.Error("that ended the connection")
	default:
	}
}

// Closing waits neither for who does not receive nor for a peer that is silent.
func TestCloseWhileReadingHasStopped(t *testing.T) {
	t.Parallel()
	for _, polite := range []bool{true, false} {
		served := make(chan struct{})
		c := startConnector(t, func(_ int, p *peer) error {
			defer close(served)
			for p.say(strings.Repeat("x", 1000), `{}`) == nil {
			}
			return nil
		})
		conn, _, err := dialTo(t, c.url, WebSocketOptions{ReadAhead: 1}).Dial(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for conn.(*webSocket).stalls.Load()%2 == 0 {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
		if !polite {
			cancel()
		}
		conn.Close(ctx, CloseNormal, "")
		cancel()
		<-conn.Done()
		<-served
	}
}

// A connection that ends within a message has no frame of it.
func TestDeathWithinAMessage(t *testing.T) {
	t.Parallel()
	c := startConnector(t, func(_ int, p *peer) error {
		w, err := p.Writer(p.ctx, websocket.MessageText)
		if err != nil {
			return err
		}
		_, err = w.Write([]byte(`{"n":1}` + "\n" + `{"n":2` + strings.Repeat(" ", 100_000)))
		return err
	})
	conn, _, err := dialTo(t, c.url, WebSocketOptions{}).Dial(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(within(t), CloseNormal, "")
	if frame, err := conn.Receive(within(t)); string(frame) != `{"n":1}` || err != nil {
		t.Errorf("%s, %v", frame, err)
	}
	if frame, err := conn.Receive(within(t)); err == nil {
		t.Errorf("%s", frame)
	}
	if err := conn.Send(within(t), []byte(`{}`)); !errors.Is(err, ErrNotSent) {
		t.Errorf("%v", err)
	}
}
