package client

import (
	"context"
	"encoding/json"
	"time"
)

// ConnectorInfo is a connector to a chat platform as its operator sees it.
type ConnectorInfo struct {
	Connector string `json:"connector"`
	// State is stopped, dialling, online, draining, waiting, refused or idle.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Error is what last ended its connection, Stalled why the event that came
	// first cannot be stored; empty if there is nothing.
	Error   string `json:"error"`
	Stalled string `json:"stalled"`
	// Backlog counts events that are not stored yet, Queued messages that wait
	// to go out.
	Backlog int `json:"backlog"`
	Queued  int `json:"queued"`
	// Descriptors are what it last said of its platforms.
	Descriptors []json.RawMessage `json:"descriptors"`
	// Delivery is whether it may post events.
	Delivery bool `json:"delivery"`
	// These count since the broker's start.
	Connections uint64 `json:"connections"`
	Handled     uint64 `json:"handled"`
	SetAside    uint64 `json:"set_aside"`
	BadFrames   uint64 `json:"bad_frames"`
}

// Connectors lists the connectors, by name.
func (c *Control) Connectors(ctx context.Context) ([]ConnectorInfo, error) {
	var list []ConnectorInfo
	return list, c.call(ctx, "list_connectors", nil, "connectors", &list)
}

// TestConnector waits until a connector is online, half a minute at most. One
// that was left, or has refused, is dialled again.
func (c *Control) TestConnector(ctx context.Context, name string) (ConnectorInfo, error) {
	var info ConnectorInfo
	return info, c.call(ctx, "test_connector", map[string]any{"connector": name}, "connector", &info)
}

// IdleConnector takes leave of a connector until it is tested, or the broker
// started again.
func (c *Control) IdleConnector(ctx context.Context, name string) (ConnectorInfo, error) {
	var info ConnectorInfo
	return info, c.call(ctx, "idle_connector", map[string]any{"connector": name}, "connector", &info)
}
