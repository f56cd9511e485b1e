package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
)

func (a *app) connectorEchoCommand() *cobra.Command {
	var listen, platform, secretFile string
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Run a connector that has no platform and sends back what it gets",
		Long: `Serves a connector for trying things, until interrupted. It prints every frame,
-> for those it sends and <- for those it gets, and what is sent to a chat comes
back from there as an event. Events that were not acknowledged are sent again
when the relay comes back.

With --secret-file, a file of one secret a line, it lets only relays in that sign
in with one of them.`,
		Example: "  agent-relay connector echo --listen 127.0.0.1:8900",
		Args:    arguments(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8900", "where to listen, `HOST:PORT`")
	cmd.Flags().StringVar(&platform, "platform", "echo", "the `NAME` of the platform it describes")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "the `FILE` of secrets with which relays sign in (default: let all in)")
	_ = cmd.RegisterFlagCompletionFunc("secret-file", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e := &echo{platform: platform, out: a.stdout}
		if secretFile != "" {
			var err error
			if e.secrets, err = readSecrets(secretFile); err != nil {
				return err
			}
		}
		var l net.ListenConfig
		listener, err := l.Listen(cmd.Context(), "tcp", listen)
		if err != nil {
			return fmt.Errorf("%w; set another --listen", err)
		}
		a.note("listening at http://%s", listener.Addr())
		return e.serve(cmd.Context(), listener)
	}
	return cmd
}

// echo is a connector whose chats send back what they get.
type echo struct {
	platform string
	// secrets sign in; none lets everybody in.
	secrets []string

	mu  sync.Mutex
	out io.Writer
	// sent counts messages and events. unacked are the frames of events that the
	// relay may not have.
	sent    int
	unacked []connector.Inbound
}

// serve serves until ctx ends.
func (e *echo) serve(ctx context.Context, listener net.Listener) error {
	var conns sync.WaitGroup
	server := &http.Server{ReadHeaderTimeout: readHeaderTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns.Add(1)
		defer conns.Done()
		e.accept(ctx, w, r)
	})}
	unhook := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unhook()
	err := server.Serve(listener)
	conns.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (e *echo) accept(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/relay") {
		http.NotFound(w, r)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	if len(e.secrets) > 0 {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, err := connector.VerifyToken(token, e.secrets, time.Now()); err != nil {
			_ = conn.Close(connector.CloseUnauthorized, err.Error())
			return
		}
	}
	c := &echoing{echo: e, relay: connector.NewWebSocket(conn, connector.WebSocketOptions{}), ctx: ctx}
	c.run()
	e.print("--", []byte("the connection ended"))
}

// print prints a frame.
func (e *echo) print(direction string, frame []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(e.out, "%s %s\n", direction, frame)
}

// echoing is one connection.
type echoing struct {
	*echo
	relay connector.FrameIO
	ctx   context.Context
	hello bool
}

func (c *echoing) run() {
	for {
		raw, err := c.relay.Receive(c.ctx)
		if errors.Is(err, connector.ErrBadFrame) {
			continue
		}
		if err != nil {
			break
		}
		c.print("<-", raw)
		if frame, err := connector.ParseFrame(raw); err == nil {
			c.take(frame)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Second)
	defer cancel()
	c.relay.Close(ctx, connector.CloseGoingAway, "the connector ends")
}

func (c *echoing) say(f connector.Frame) {
	raw := f.AppendJSON(nil)
	if c.relay.Send(c.ctx, raw) == nil {
		c.print("->", raw)
	}
}

func (c *echoing) take(frame connector.Frame) {
	switch f := frame.(type) {
	case connector.Hello:
		if f.Platform != c.platform || c.hello {
			return
		}
		c.hello = true
		d := connector.Project(connector.PlatformEntry{Name: c.platform, Label: "Echo"}, connector.DefaultProjection())
		d.SupportedOps = []connector.Op{connector.OpSend, connector.OpEdit, connector.OpTyping, connector.OpFollowUp, connector.OpGetChatInfo}
		c.say(connector.Describe{Descriptor: d})
		for _, event := range c.waiting() {
			c.say(event)
		}
	case connector.Outbound:
		c.carryOut(f)
	case connector.GoingIdle:
		c.say(connector.GoingIdleAck{})
	case connector.InboundAck:
		c.acked(f.BufferID)
	}
}

// carryOut says that an action was carried out; what was sent comes back.
func (c *echoing) carryOut(o connector.Outbound) {
	c.mu.Lock()
	c.sent++
	id := strconv.Itoa(c.sent)
	c.mu.Unlock()
	result := connector.Result{Success: true}
	switch o.Action.Op {
	case connector.OpGetChatInfo:
		result.Raw = connector.ChatInfo{Name: "echo", Type: "dm"}.AppendResult(nil)
	case connector.OpSend:
		result.MessageID = id
	}
	c.say(connector.OutboundResult{RequestID: o.RequestID, Result: result})
	if o.Action.Op != connector.OpSend {
		return
	}
	event := agentrelay.AppendString([]byte(`{"text":`), o.Action.Content)
	event = agentrelay.AppendString(append(event, `,"message_id":`...), "echo-"+id)
	event = agentrelay.AppendString(append(event, `,"source":{"platform":`...), c.platform)
	event = agentrelay.AppendString(append(event, `,"chat_id":`...), o.Action.ChatID)
	inbound := connector.Inbound{Event: append(event, "}}"...), BufferID: id}
	c.mu.Lock()
	c.unacked = append(c.unacked, inbound)
	c.mu.Unlock()
	c.say(inbound)
}

func (e *echo) waiting() []connector.Inbound {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]connector.Inbound(nil), e.unacked...)
}

func (e *echo) acked(bufferID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range e.unacked {
		if f.BufferID == bufferID {
			e.unacked = append(e.unacked[:i:i], e.unacked[i+1:]...)
			return
		}
	}
}
