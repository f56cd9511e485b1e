package client

import (
	"context"
	"fmt"
	"net/http"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Capabilities are the parts of the protocol that a broker has.
type Capabilities struct {
	LeaseDelivery       bool `json:"leaseDelivery"`
	RequestReply        bool `json:"requestReply"`
	FilteredQuery       bool `json:"filteredQuery"`
	SQLitePersistence   bool `json:"sqlitePersistence"`
	LongPoll            bool `json:"longPoll"`
	LeaseRenewal        bool `json:"leaseRenewal"`
	SignedResponses     bool `json:"signedResponses"`
	SingleUseTimestamps bool `json:"singleUseTimestamps"`
}

// Broker is what a broker says of itself.
type Broker struct {
	Protocol string `json:"protocol"`
	// Name is the program, Version its version, Storage what it keeps messages
	// in.
	Name         string       `json:"broker"`
	Version      string       `json:"version"`
	Storage      string       `json:"storage"`
	Capabilities Capabilities `json:"capabilities"`
}

// Handshake asks who is there. It is ErrNotRelay unless that is a broker of
// agentrelay.ProtocolVersion. The call is not signed: a stranger on the port
// learns nothing.
func (c *Client) Handshake(ctx context.Context) (Broker, error) {
	var b Broker
	err := c.do(ctx, call{method: http.MethodGet, target: "/", public: true}, &b,
		func() bool { return b.Protocol != "" })
	if err != nil {
		return Broker{}, err
	}
	if b.Protocol != agentrelay.ProtocolVersion {
		return Broker{}, &fault{
			text: fmt.Sprintf("something else answers at %s: it speaks protocol %.20q, this client %q; update the older of the two, or correct the URL or the port",
				c.base, b.Protocol, agentrelay.ProtocolVersion),
			kind: ErrNotRelay,
		}
	}
	return b, nil
}

// Register makes the agent known to the broker, so that others may send to
// it. Repeating it is harmless.
func (c *Client) Register(ctx context.Context) error {
	body := append(agentrelay.AppendString([]byte(`{"agent":`), c.agent), '}')
	var result struct {
		OK    bool   `json:"ok"`
		Agent string `json:"agent"`
	}
	return c.do(ctx, call{method: http.MethodPost, target: "/register", body: body}, &result,
		func() bool { return result.OK && result.Agent == c.agent })
}

// Peers returns the registered agents, sorted by name.
func (c *Client) Peers(ctx context.Context) ([]agentrelay.Peer, error) {
	var result struct {
		Peers *[]struct {
			Agent    string  `json:"agent"`
			Online   bool    `json:"online"`
			LastSeen float64 `json:"lastSeen"`
		} `json:"peers"`
	}
	err := c.do(ctx, call{method: http.MethodGet, target: "/peers"}, &result,
		func() bool { return result.Peers != nil })
	if err != nil {
		return nil, err
	}
	peers := make([]agentrelay.Peer, len(*result.Peers))
	for i, p := range *result.Peers {
		peers[i] = agentrelay.Peer{Agent: p.Agent, Online: p.Online, LastSeen: epochTime(p.LastSeen)}
	}
	return peers, nil
}
