//go:build !windows

package socket

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// platforms are connectors that a test makes up.
type platforms struct{ list []ConnectorInfo }

func (p platforms) Connectors(context.Context) ([]ConnectorInfo, error) { return p.list, nil }

func (p platforms) TestConnector(_ context.Context, name string) (ConnectorInfo, error) {
	if name != p.list[0].Connector {
		return ConnectorInfo{}, &agentrelay.Error{Code: agentrelay.CodeNotFound, Message: "there is no such connector"}
	}
	return p.list[0], nil
}

func (p platforms) IdleConnector(ctx context.Context, name string) (ConnectorInfo, error) {
	return p.TestConnector(ctx, name)
}

func TestControlConnectors(t *testing.T) {
	const chat = `{"connector":"chat","state":"online","since":"2025-06-15T15:06:40.000Z","error":"e","stalled":null,"backlog":1,"queued":2,` +
		`"descriptors":[{"platform":"p"}],"delivery":true,"connections":3,"handled":4,"set_aside":5,"bad_frames":6}`
	some := NewControl(ControlOptions{Connectors: platforms{[]ConnectorInfo{{
		Connector: "chat", State: "online", Since: time.UnixMilli(1750000000000), Error: "e", Backlog: 1, Queued: 2,
		Descriptors: []json.RawMessage{json.RawMessage(`{"platform":"p"}`)}, Delivery: true, Connections: 3, Handled: 4, SetAside: 5, BadFrames: 6,
	}}}})
	none := NewControl(ControlOptions{})
	for _, test := range []struct {
		control    *Control
		line, want string
	}{
		{none, `{"id":1,"method":"list_connectors"}`, `"result":{"type":"connectors","data":[]}}`},
		{none, `{"id":1,"method":"test_connector","params":{"connector":"chat"}}`, `"error":"this broker has no connectors","code":"not_found"}`},
		{some, `{"id":1,"method":"idle_connector"}`, `"error":"\"connector\" is missing","code":"bad_request"}`},
		{some, `{"id":1,"method":"list_connectors"}`, `"result":{"type":"connectors","data":[` + chat + `]}}`},
		{some, `{"id":1,"method":"test_connector","params":{"connector":"chat"}}`, `"result":{"type":"connector","data":` + chat + `}}`},
		{some, `{"id":1,"method":"idle_connector","params":{"connector":"chat"}}`, `"result":{"type":"connector","data":` + chat + `}}`},
		{some, `{"id":1,"method":"test_connector","params":{"connector":"c"}}`, `"error":"there is no such connector","code":"not_found"}`},
	} {
		r, err := parseControlRequest([]byte(test.line))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := test.control.methods[r.method](t.Context(), r.params)
		got := string(answer.reply(r.id))
		if err != nil {
			got = string(errorReply(r.id, err))
		}
		if want := `{"kind":"reply","id":1,` + test.want + "\n"; got != want {
			t.Errorf("%s is answered with %s, want %s", test.line, got, want)
		}
	}
}

// slow holds whoever waits for a connector until it is let go.
type slow struct {
	platforms
	held chan struct{}
}

func (s slow) TestConnector(ctx context.Context, _ string) (ConnectorInfo, error) {
	select {
	case <-s.held:
	case <-ctx.Done():
	}
	return ConnectorInfo{Connector: "chat"}, nil
}

// Who waits for a connector holds up no other request.
func TestControlConnectorsWait(t *testing.T) {
	held := make(chan struct{})
	control := NewControl(ControlOptions{Broker: &recorder{}, Version: "1.2.3", Connectors: slow{held: held}})
	s := &controlSocket{control: control, fixture: newFixture(t, Options{Serve: control.Serve})}
	c := s.greet()
	c.say(`{"id":1,"method":"test_connector","params":{"connector":"chat"}}`)
	if got := c.ask(`{"id":2,"method":"list_connectors"}`); got != `{"kind":"reply","id":2,"result":{"type":"connectors","data":[]}}` {
		t.Errorf("the list is %s", got)
	}
	close(held)
	if got := c.hear(); !strings.HasPrefix(got, `{"kind":"reply","id":1,"result":{"type":"connector"`) {
		t.Errorf("then comes %s", got)
	}
}
