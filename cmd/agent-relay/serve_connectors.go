package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/bridge"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/broker/socket"
)

// leaveTimeout is how long connectors are taken leave of, at the end of which
// messages under way are answered. It fits into endTimeout.
const leaveTimeout = 5 * time.Second

// bridged makes what the config says of connectors into what they are.
func (c *config) bridged() ([]bridge.Connector, error) {
	var list []bridge.Connector
	for _, name := range slices.Sorted(maps.Keys(c.Connectors)) {
		one, err := c.Connectors[name].bridged(name)
		if err != nil {
			return nil, fmt.Errorf("%w (connectors.%s in %s)", err, name, c.file)
		}
		list = append(list, one)
	}
	return list, nil
}

func (c *connectorConfig) bridged(name string) (bridge.Connector, error) {
	secrets, err := readSecrets(c.SecretFile)
	if err != nil {
		return bridge.Connector{}, err
	}
	tokens, err := connector.NewTokenMinter(secrets[0], c.GatewayID, c.TokenTTL)
	if err != nil {
		return bridge.Connector{}, err
	}
	at, err := connector.ParseURL(c.URL)
	if err != nil {
		return bridge.Connector{}, err
	}
	one := bridge.Connector{
		Name: name, Identities: c.Identities, DeliverTo: c.DeliverTo,
		Dialer: &connector.WebSocketDialer{URL: at, Tokens: tokens},
	}
	for _, r := range c.Routes {
		one.Routes = append(one.Routes, bridge.Route{Platform: r.Platform, ChatID: r.ChatID, DeliverTo: r.DeliverTo})
	}
	if c.DeliveryKeysFile == "" {
		return one, nil
	}
	keys, err := readSecrets(c.DeliveryKeysFile)
	if err != nil {
		return bridge.Connector{}, err
	}
	one.Delivery, err = connector.NewDeliveryVerifier(keys, c.DeliverySkew)
	return one, err
}

// readSecrets reads a private file of secrets, one a line, and at least one.
func readSecrets(path string) ([]string, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var secrets []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			secrets = append(secrets, line)
		}
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s holds no secret; write one a line, such as that of: openssl rand -hex 32", path)
	}
	return secrets, nil
}

// readPrivate reads a small file that nobody but its owner may read.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := checkPrivate(path, info); err != nil {
		return nil, err
	}
	if info.Size() > maxConfigBytes {
		return nil, fmt.Errorf("%s is over %d bytes; is it the right file?", path, maxConfigBytes)
	}
	return os.ReadFile(path)
}

// openBridge connects p's broker with connectors, of which it says what may
// surprise.
func (p *process) openBridge(ctx context.Context, c *config, connectors []bridge.Connector) (err error) {
	for _, name := range slices.Sorted(maps.Keys(c.Connectors)) {
		at, err := url.Parse(c.Connectors[name].URL)
		if err == nil && (at.Scheme == "http" || at.Scheme == "ws") && !isLoopbackHost(at.Hostname()) {
			p.log.Warn("what goes to this connector is not encrypted; give it a url with https", "connector", name)
		}
	}
	p.bridge, err = bridge.Open(ctx, bridge.Options{
		Broker: p.broker, Connectors: connectors, MaxBodyBytes: c.MaxBodyBytes, Log: p.log,
		Limits: connector.Limits{Idle: leaveTimeout},
	})
	return err
}

func isLoopbackHost(name string) bool {
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

// deliver is what httpapi needs; nil if no connector may post events.
func (p *process) deliver(connectors []bridge.Connector) func(context.Context, string, string, string, []byte) (string, bool, error) {
	if !slices.ContainsFunc(connectors, func(c bridge.Connector) bool { return c.Delivery != nil }) {
		return nil
	}
	return func(ctx context.Context, name, timestamp, signature string, body []byte) (string, bool, error) {
		sent, err := p.bridge.Deliver(ctx, bridge.Delivery{Connector: name, Timestamp: timestamp, Signature: signature, Body: body})
		return sent.ID, sent.Duplicate, err
	}
}

// bridgedConnectors are a process's connectors as the control socket shows them.
type bridgedConnectors struct{ *process }

// Connectors implements socket.Connectors.
func (p bridgedConnectors) Connectors(ctx context.Context) ([]socket.ConnectorInfo, error) {
	var list []socket.ConnectorInfo
	for _, s := range p.bridge.States() {
		info, err := p.info(ctx, s, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

// TestConnector implements socket.Connectors.
func (p bridgedConnectors) TestConnector(ctx context.Context, name string) (socket.ConnectorInfo, error) {
	s, err := p.bridge.Test(ctx, name)
	return p.info(ctx, s, err)
}

// IdleConnector implements socket.Connectors.
func (p bridgedConnectors) IdleConnector(ctx context.Context, name string) (socket.ConnectorInfo, error) {
	s, err := p.bridge.Idle(ctx, name)
	return p.info(ctx, s, err)
}

// info shows a state, unless what led to it failed. Why a connector is not online
// is no fault of the broker's, and is told.
func (p bridgedConnectors) info(ctx context.Context, s bridge.State, err error) (socket.ConnectorInfo, error) {
	if err != nil && s.Name != "" && ctx.Err() == nil {
		return socket.ConnectorInfo{}, &agentrelay.Error{Code: agentrelay.CodeBusy, Message: "the connector is not online: " + err.Error()}
	}
	if err != nil {
		return socket.ConnectorInfo{}, err
	}
	agent, err := p.broker.AgentInfo(ctx, s.Name)
	if err != nil {
		return socket.ConnectorInfo{}, err
	}
	info := socket.ConnectorInfo{
		Connector: s.Name, State: string(s.Phase), Since: s.Since, Backlog: s.Backlog, Queued: agent.Queued, Delivery: s.Delivery,
		Connections: s.Connections, Handled: s.Handled, SetAside: s.SetAside, BadFrames: s.BadFrames,
	}
	if s.Idle && s.Phase == connector.Stopped {
		info.State = "idle"
	}
	if s.Err != nil {
		info.Error = s.Err.Error()
	}
	if s.Stalled != nil {
		info.Stalled = s.Stalled.Error()
	}
	for _, d := range s.Descriptors {
		info.Descriptors = append(info.Descriptors, d.AppendJSON(nil))
	}
	return info, nil
}
