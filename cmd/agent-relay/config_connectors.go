package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
)

// connectorConfig is what the config says of one connector. Its files are
// absolute, and are read when the broker starts.
type connectorConfig struct {
	URL, GatewayID, SecretFile string
	// TokenTTL is how long a token is valid that the relay signs in with.
	TokenTTL   time.Duration
	Identities []connector.Identity
	DeliverTo  string
	Routes     []routeConfig
	// DeliveryKeysFile is empty where events may not be posted.
	DeliveryKeysFile string
	// DeliverySkew is how far a delivery's timestamp may be from the clock.
	DeliverySkew time.Duration
}

// routeConfig sends the events of a chat, of a platform or of both to an agent.
type routeConfig struct {
	Platform, ChatID, DeliverTo string
}

const (
	minTokenTTL = time.Second
	maxTokenTTL = 24 * time.Hour
	minSkew     = time.Second
	maxSkew     = time.Hour
)

func (c *connectorConfig) fields() fields {
	return fields{
		"url":         text(&c.URL),
		"gateway_id":  text(&c.GatewayID),
		"secret_file": text(&c.SecretFile),
		"token_ttl":   duration(&c.TokenTTL),
		"deliver_to":  text(&c.DeliverTo),
		"identities": list(func() fields {
			c.Identities = append(c.Identities, connector.Identity{})
			id := &c.Identities[len(c.Identities)-1]
			return fields{"platform": text(&id.Platform), "bot_id": text(&id.BotID)}
		}),
		"routes": list(func() fields {
			c.Routes = append(c.Routes, routeConfig{})
			r := &c.Routes[len(c.Routes)-1]
			return fields{"platform": text(&r.Platform), "chat_id": text(&r.ChatID), "deliver_to": text(&r.DeliverTo)}
		}),
		"delivery_keys_file": text(&c.DeliveryKeysFile),
		"delivery_skew":      duration(&c.DeliverySkew),
	}
}

// list reads a list of objects, each with the fields that next makes for it.
func list(next func() fields) field {
	return func(r *configReader, path string, n ast.Node) {
		sequence, ok := n.(*ast.SequenceNode)
		if !ok {
			r.add(n, path, "must be a list of objects, such as [{ key: value }]")
			return
		}
		for i, value := range sequence.Values {
			at := path + "[" + strconv.Itoa(i) + "]"
			r.lines[at] = lineOf(value.GetToken())
			r.object(at, value, next())
		}
	}
}

// readConnectors reads connectors.
func (c *config) readConnectors(r *configReader, path string, n ast.Node) {
	c.Connectors = map[string]*connectorConfig{}
	r.each(path, n, func(name, at string, nameNode, value ast.Node) {
		if !agentrelay.ValidName(name) {
			r.add(nameNode, showKey(path, name), badName)
			return
		}
		one := &connectorConfig{TokenTTL: connector.DefaultTokenTTL, DeliverySkew: connector.DefaultDeliverySkew}
		c.Connectors[name] = one
		if value.Type() != ast.NullType {
			r.object(at, value, one.fields())
		}
	})
}

func (v *validation) connectors() {
	for _, name := range slices.Sorted(maps.Keys(v.c.Connectors)) {
		v.connector("connectors."+name, v.c.Connectors[name])
		if _, both := v.c.Agents[name]; both {
			v.add("agents."+name, "is the name of a connector; what it delivers is for connectors to say")
		}
	}
}

func (v *validation) connector(at string, c *connectorConfig) {
	if v.needs(at, "url", c.URL) {
		if _, err := connector.ParseURL(c.URL); err != nil {
			v.add(at+".url", "cannot be dialled: "+err.Error())
		}
	}
	v.needs(at, "gateway_id", c.GatewayID)
	if v.needs(at, "secret_file", c.SecretFile) {
		v.absolute(at+".secret_file", c.SecretFile)
	}
	if c.DeliveryKeysFile != "" {
		v.absolute(at+".delivery_keys_file", c.DeliveryKeysFile)
	}
	v.duration(at+".token_ttl", c.TokenTTL, minTokenTTL, maxTokenTTL)
	if c.TokenTTL%time.Second != 0 {
		v.add(at+".token_ttl", "must be a whole number of seconds")
	}
	v.duration(at+".delivery_skew", c.DeliverySkew, minSkew, maxSkew)
	v.identities(at, c.Identities)
	if c.DeliverTo == "" && len(c.Routes) == 0 {
		v.orphan(at, "deliver_to", "is missing; name the agent that gets the events, or give routes")
	}
	if c.DeliverTo != "" {
		v.recipient(at+".deliver_to", c.DeliverTo)
	}
	for i, r := range c.Routes {
		route := item(at+".routes", i)
		v.recipient(route+".deliver_to", r.DeliverTo)
		if r.ChatID == "" && r.Platform == "" {
			v.add(route, "needs chat_id or platform; what is for all other events is deliver_to of the connector")
		}
	}
}

func (v *validation) identities(at string, list []connector.Identity) {
	if len(list) == 0 {
		v.orphan(at, "identities", "is missing; list the accounts, such as [{ platform: telegram, bot_id: \"123\" }]")
	}
	for i, id := range list {
		switch here := item(at+".identities", i); {
		case id.Platform == "":
			v.add(here, "needs a platform")
		case slices.Contains(list[:i], id):
			v.add(here, "stands in this list already; remove it")
		}
	}
}

// recipient checks the name of who gets events.
func (v *validation) recipient(key, name string) {
	switch {
	case !agentrelay.ValidName(name):
		v.add(key, badName)
	case v.c.Connectors[name] != nil:
		v.add(key, "is a connector; name an agent")
	}
}

// needs reports whether a key is there, and complains if it is not.
func (v *validation) needs(at, key, value string) bool {
	if value == "" {
		v.orphan(at, key, "is missing")
	}
	return value != ""
}

// orphan complains of a key that is not there, at the line of what lacks it.
func (v *validation) orphan(at, key, text string) {
	if v.known[at+"."+key] {
		return
	}
	v.add(at, fmt.Sprintf("%s %s", key, text))
}

func (v *validation) absolute(key, path string) {
	if !filepath.IsAbs(path) {
		v.add(key, "must be an absolute path; ~ and variables are not expanded here")
	}
}
