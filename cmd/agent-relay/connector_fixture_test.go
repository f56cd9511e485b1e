package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/client"
)

const connectorSecret = "5f2d8c1e7a904b36d1e8f07c52ab9463"

// secretFile writes a private file of secrets.
func secretFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// chatLines are lines of a config with a connector named chat, whose events go
// to ben.
func chatLines(t *testing.T, url string, more ...string) string {
	t.Helper()
	return chatLinesWith(url, secretFile(t, connectorSecret, "an older one"), more...)
}

func chatLinesWith(url, secrets string, more ...string) string {
	lines := append([]string{
		"connectors:", "  chat:", "    url: " + url, "    gateway_id: gw-1", "    secret_file: '" + secrets + "'",
		"    identities: [{ platform: chat, bot_id: '1' }]", "    deliver_to: ben",
	}, more...)
	return strings.Join(lines, "\n") + "\n"
}

// chatServer is a connector that a test directs.
type chatServer struct {
	url   string
	conns chan *chatConn
}

// chatConn is a connection whose handshake is good.
type chatConn struct {
	connector.FrameIO
	t   *testing.T
	ctx context.Context
}

func startChat(t *testing.T) *chatServer {
	t.Helper()
	s := &chatServer{conns: make(chan *chatConn)}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		c := &chatConn{connector.NewWebSocket(ws, connector.WebSocketOptions{}), t, ctx}
		defer c.Close(ctx, connector.CloseNormal, "")
		if c.Send(ctx, []byte(`{"type":"descriptor","descriptor":{"contract_version":1,"platform":"chat"}}`)) != nil {
			return
		}
		select {
		case s.conns <- c:
			<-c.Done()
		case <-c.Done():
		case <-ctx.Done():
		}
	}))
	s.url = server.URL
	t.Cleanup(func() { cancel(); server.Close() })
	return s
}

func (s *chatServer) next(t *testing.T) *chatConn {
	t.Helper()
	select {
	case c := <-s.conns:
		return c
	case <-time.After(time.Minute):
		t.Fatal("nobody dials")
		return nil
	}
}

// hear returns the next frame after the greeting, or nil at the end.
func (c *chatConn) hear() connector.Frame {
	for {
		raw, err := c.Receive(c.ctx)
		if err != nil {
			return nil
		}
		frame, err := connector.ParseFrame(raw)
		if err != nil {
			c.t.Errorf("the relay says %s: %v", raw, err)
			return nil
		}
		if _, greeting := frame.(connector.Hello); !greeting {
			return frame
		}
	}
}

// arrivals waits until an agent has n messages.
func arrivals(t *testing.T, c *client.Client, n int) []agentrelay.Message {
	t.Helper()
	var list []agentrelay.Message
	since := ""
	for len(list) < n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		page, err := c.Poll(ctx, client.PollOptions{Since: since, Limit: 200, Wait: 30 * time.Second})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) == 0 {
			t.Fatalf("there are %d messages, want %d", len(list), n)
		}
		list, since = append(list, page.Messages...), page.Cursor
	}
	if len(list) != n {
		t.Fatalf("there are %d messages, want %d", len(list), n)
	}
	return list
}

// say sends a message to chat.
func say(t *testing.T, c *client.Client, id, body string) {
	t.Helper()
	if _, err := c.Send(t.Context(), client.Outgoing{ID: id, To: "chat", Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
}

func register(t *testing.T, clients ...*client.Client) {
	t.Helper()
	for _, c := range clients {
		if err := c.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// eventOf is the nth event of a connector.
func eventOf(n int) connector.Inbound {
	return connector.Inbound{Event: fmt.Appendf(nil, `{"text":"%d","message_id":"m%d"}`, n, n), BufferID: fmt.Sprint(n)}
}
