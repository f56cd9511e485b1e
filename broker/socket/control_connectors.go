package socket

import (
	"context"
	"encoding/json"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Connectors are what the control socket tells of chat platforms, and does with
// them.
type Connectors interface {
	// Connectors tells how all stand, sorted by name.
	Connectors(ctx context.Context) ([]ConnectorInfo, error)
	// TestConnector waits until one is online, and has it dialled if it was left.
	// It fails with what keeps it from that.
	TestConnector(ctx context.Context, name string) (ConnectorInfo, error)
	// IdleConnector takes leave of one until it is tested.
	IdleConnector(ctx context.Context, name string) (ConnectorInfo, error)
}

// ConnectorInfo is how a connector stands.
type ConnectorInfo struct {
	Connector string
	// State is the phase of its connection, or idle.
	State string
	Since time.Time
	// Error is what last ended a connection, Stalled why the event that came
	// first cannot be stored.
	Error, Stalled string
	// Backlog counts events that are not stored yet, Queued messages that wait
	// to go out.
	Backlog, Queued int
	// Descriptors are what it last said of its platforms, as JSON.
	Descriptors []json.RawMessage
	// Delivery is whether it may post events.
	Delivery bool
	// These count since the start.
	Connections, Handled, SetAside, BadFrames uint64
}

type connectorData struct {
	Connector   string            `json:"connector"`
	State       string            `json:"state"`
	Since       moment            `json:"since"`
	Error       *string           `json:"error"`
	Stalled     *string           `json:"stalled"`
	Backlog     int               `json:"backlog"`
	Queued      int               `json:"queued"`
	Descriptors []json.RawMessage `json:"descriptors"`
	Delivery    bool              `json:"delivery"`
	Connections uint64            `json:"connections"`
	Handled     uint64            `json:"handled"`
	SetAside    uint64            `json:"set_aside"`
	BadFrames   uint64            `json:"bad_frames"`
}

func newConnectorData(i ConnectorInfo) connectorData {
	d := connectorData{
		Connector: i.Connector, State: i.State, Since: moment(i.Since), Backlog: i.Backlog, Queued: i.Queued,
		Descriptors: append([]json.RawMessage{}, i.Descriptors...), Delivery: i.Delivery,
		Connections: i.Connections, Handled: i.Handled, SetAside: i.SetAside, BadFrames: i.BadFrames,
	}
	if i.Error != "" {
		d.Error = &i.Error
	}
	if i.Stalled != "" {
		d.Stalled = &i.Stalled
	}
	return d
}

func (c *Control) listConnectors(ctx context.Context, _ params) (result, error) {
	list := []connectorData{}
	if c.o.Connectors != nil {
		infos, err := c.o.Connectors.Connectors(ctx)
		if err != nil {
			return result{}, err
		}
		for _, i := range infos {
			list = append(list, newConnectorData(i))
		}
	}
	return dataResult("connectors", list)
}

func (c *Control) testConnector(ctx context.Context, p params) (result, error) {
	return c.withConnector(ctx, p, Connectors.TestConnector)
}

func (c *Control) idleConnector(ctx context.Context, p params) (result, error) {
	return c.withConnector(ctx, p, Connectors.IdleConnector)
}

func (c *Control) withConnector(ctx context.Context, p params, do func(Connectors, context.Context, string) (ConnectorInfo, error)) (result, error) {
	name, err := p.text("connector")
	if err != nil {
		return result{}, err
	}
	if c.o.Connectors == nil {
		return result{}, &agentrelay.Error{Code: agentrelay.CodeNotFound, Message: "this broker has no connectors"}
	}
	info, err := do(c.o.Connectors, ctx, name)
	if err != nil {
		return result{}, err
	}
	return dataResult("connector", newConnectorData(info))
}
