package connector_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/coder/websocket"
)

const secret = "5f2d8c1e7a904b36d1e8f07c52ab9463"

// serveRelay is a whole connector: it welcomes the relay, passes one event on,
// and carries out what it is asked.
func serveRelay(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	token := r.Header.Get("Authorization")[len("Bearer "):]
	if _, err := connector.VerifyToken(token, []string{secret}, time.Now()); err != nil {
		_ = conn.Close(connector.CloseUnauthorized, err.Error())
		return
	}
	relay := connector.NewWebSocket(conn, connector.WebSocketOptions{})
	defer relay.Close(r.Context(), connector.CloseNormal, "")
	say := func(f connector.Frame) { _ = relay.Send(r.Context(), f.AppendJSON(nil)) }
	for {
		raw, err := relay.Receive(r.Context())
		if err != nil {
			return
		}
		frame, err := connector.ParseFrame(raw)
		if err != nil {
			continue
		}
		switch f := frame.(type) {
		case connector.Hello:
			platform := connector.PlatformEntry{Name: f.Platform, Label: "A chat"}
			say(connector.Describe{Descriptor: connector.Project(platform, connector.DefaultProjection())})
			say(connector.Inbound{Event: []byte(`{"text":"anybody there?"}`), BufferID: "1"})
		case connector.Outbound:
			result := connector.Result{Success: true, MessageID: "m1"}
			say(connector.OutboundResult{RequestID: f.RequestID, Result: result})
		case connector.GoingIdle:
			say(connector.GoingIdleAck{})
		}
	}
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(serveRelay))
	defer server.Close()

	// The relay's end.
	url, err := connector.ParseURL(server.URL)
	if err != nil {
		fmt.Println(err)
	}
	tokens, err := connector.NewTokenMinter(secret, "gw-1", connector.DefaultTokenTTL)
	if err != nil {
		fmt.Println(err)
	}
	me := connector.Identity{Platform: "chat", BotID: "123"}
	events := make(chan string, 1)
	transport, err := connector.New(connector.Options{
		Dialer:     &connector.WebSocketDialer{URL: url, Tokens: tokens},
		Identities: []connector.Identity{me},
		Handlers: connector.Handlers{Inbound: func(_ context.Context, in connector.Inbound) error {
			events <- string(in.Event)
			return nil
		}},
	})
	if err != nil {
		fmt.Println(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- transport.Run(ctx) }()

	description, err := transport.Await(ctx, "chat")
	fmt.Println(description.Label, err)
	fmt.Println(<-events)
	hello := connector.Intent{IdempotencyKey: "1", ChannelID: "chat", ConversationID: "c1", Payload: connector.Text("hello")}
	result, err := transport.Send(ctx, hello.Action(), me)
	fmt.Println(result.Success, result.MessageID, err)
	stop()
	fmt.Println(<-stopped)
	// Output:
	// A chat <nil>
	// {"text":"anybody there?"}
	// true m1 <nil>
	// <nil>
}
