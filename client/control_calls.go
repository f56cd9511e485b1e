package client

import (
	"context"
	"encoding/json"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// AgentInfo is an agent as its operator sees it.
type AgentInfo struct {
	Agent       string `json:"agent"`
	Description string `json:"description"`
	// AllowedTargets are the only agents to which it may send; nil is anyone,
	// none in it nobody.
	AllowedTargets []string `json:"allowed_targets"`
	// MaxQueued bounds its inbox; 0 leaves that to the broker.
	MaxQueued  int64 `json:"max_queued"`
	Registered bool  `json:"registered"`
	Online     bool  `json:"online"`
	// LastSeen is zero if it was never seen.
	LastSeen time.Time `json:"last_seen"`
	// Queued and Leased count the messages of its inbox.
	Queued int `json:"queued"`
	Leased int `json:"leased"`
	// Keys are its own. One that was given none signs with the shared secret.
	Keys []KeyInfo `json:"keys"`
	// LockedUntil is zero if it is not locked out.
	LockedUntil time.Time `json:"locked_until"`
}

// KeyInfo is an agent's key, without its secret.
type KeyInfo struct {
	ID      string    `json:"key_id"`
	Created time.Time `json:"created"`
	// NotAfter is when the key ends; zero is never. LastUsed is zero if it
	// never was used.
	NotAfter time.Time `json:"not_after"`
	LastUsed time.Time `json:"last_used"`
}

// Key is a new key of an agent. Its secret is told this once.
type Key struct {
	Agent    string    `json:"agent"`
	ID       string    `json:"key_id"`
	Secret   string    `json:"secret"`
	NotAfter time.Time `json:"not_after"`
}

// Change is what becomes of one value; see Set and Remove. The zero value
// leaves it as it is.
type Change[T any] struct {
	set   bool
	value *T
}

// Set gives a value.
func Set[T any](value T) Change[T] { return Change[T]{true, &value} }

// Remove takes a value away, so that the broker's own counts.
func Remove[T any]() Change[T] { return Change[T]{set: true} }

// AgentChange is what becomes of an agent's values.
type AgentChange struct {
	Description    Change[string]
	AllowedTargets Change[[]string]
	MaxQueued      Change[int64]
}

// params adds what is to change to the agent's name.
func (a AgentChange) params(name string) map[string]any {
	p := map[string]any{"agent": name}
	add(p, "description", a.Description)
	add(p, "allowed_targets", a.AllowedTargets)
	add(p, "max_queued", a.MaxQueued)
	return p
}

func add[T any](params map[string]any, name string, c Change[T]) {
	if c.set {
		params[name] = c.value
	}
}

// ControlStats are how a broker stands.
type ControlStats struct {
	DaemonVersion string    `json:"daemon_version"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	// Agents are registered, AgentsOnline of them were here lately.
	Agents       int `json:"agents"`
	AgentsOnline int `json:"agents_online"`
	// Queued and Leased count messages, over all inboxes. OldestQueued is when
	// the queued message was accepted that was accepted first; zero if there
	// is none.
	Queued        int       `json:"queued"`
	Leased        int       `json:"leased"`
	OldestQueued  time.Time `json:"oldest_queued"`
	DatabaseBytes int64     `json:"database_bytes"`
	LogBytes      int64     `json:"log_bytes"`
	// ControlClients are connected to the control socket, ControlSubscribers
	// of them want events. The others count since the start: lines that could
	// not be read, and events that were not read in time.
	ControlClients         int    `json:"control_clients"`
	ControlSubscribers     int    `json:"control_subscribers"`
	ControlUnreadableLines uint64 `json:"control_unreadable_lines"`
	ControlLostEvents      uint64 `json:"control_lost_events"`
}

// Stats tells how the broker stands. Counts may be a few seconds old.
func (c *Control) Stats(ctx context.Context) (ControlStats, error) {
	var s ControlStats
	return s, c.call(ctx, "stats", nil, "stats", &s)
}

// Agents lists the agents, by name.
func (c *Control) Agents(ctx context.Context) ([]AgentInfo, error) {
	var list []AgentInfo
	return list, c.call(ctx, "list_agents", nil, "agents", &list)
}

// Agent tells of one agent.
func (c *Control) Agent(ctx context.Context, name string) (AgentInfo, error) {
	var info AgentInfo
	return info, c.call(ctx, "get_agent", agentParams(name), "agent", &info)
}

func agentParams(name string) map[string]any { return map[string]any{"agent": name} }

// AddAgent registers an agent and gives it its first key. From then on nothing
// but its own keys is good for it.
func (c *Control) AddAgent(ctx context.Context, name string, a AgentChange) (Key, error) {
	var k Key
	return k, c.call(ctx, "add_agent", a.params(name), "key", &k)
}

// UpdateAgent changes an agent, and returns it as it is then.
func (c *Control) UpdateAgent(ctx context.Context, name string, a AgentChange) (AgentInfo, error) {
	var info AgentInfo
	return info, c.call(ctx, "update_agent", a.params(name), "agent", &info)
}

// RemoveAgent forgets an agent and its keys.
func (c *Control) RemoveAgent(ctx context.Context, name string) error {
	return c.call(ctx, "remove_agent", agentParams(name), "ok", nil)
}

// UnlockAgent ends the locks of an agent.
func (c *Control) UnlockAgent(ctx context.Context, name string) error {
	return c.call(ctx, "unlock_agent", agentParams(name), "ok", nil)
}

// AddKey gives an agent a further key, which ends at notAfter; zero is never.
func (c *Control) AddKey(ctx context.Context, name string, notAfter time.Time) (Key, error) {
	p := agentParams(name)
	if !notAfter.IsZero() {
		p["not_after"] = notAfter.UTC().Format(time.RFC3339Nano)
	}
	var k Key
	return k, c.call(ctx, "add_key", p, "key", &k)
}

// RotateKey gives an agent a further key, and has its others end after the
// overlap. Whole seconds count, rounded up.
func (c *Control) RotateKey(ctx context.Context, name string, overlap time.Duration) (Key, error) {
	p := agentParams(name)
	p["overlap_seconds"] = wholeSeconds(overlap)
	var k Key
	return k, c.call(ctx, "rotate_key", p, "key", &k)
}

// RevokeKey ends a key at once.
func (c *Control) RevokeKey(ctx context.Context, name, keyID string) error {
	p := agentParams(name)
	p["key_id"] = keyID
	return c.call(ctx, "revoke_key", p, "ok", nil)
}

// Send stores a message from any agent; see Client.Send. RootID cannot be sent
// this way, and ParentID only where it is the ReplyTo of a reply. Recipient of
// what it returns is not told.
func (c *Control) Send(ctx context.Context, from string, m Outgoing) (Sent, error) {
	if m.RootID != "" || m.ParentID != "" && (m.ParentID != m.ReplyTo || m.Kind != agentrelay.KindReply) {
		return Sent{}, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: "the control socket takes no rootId or parentId; send the message as its agent"}
	}
	if m.ID == "" {
		var err error
		if m.ID, err = NewID(); err != nil {
			return Sent{}, err
		}
	}
	if m.Body == nil {
		m.Body = json.RawMessage(`{}`)
	}
	// encoding/json would compact and re-escape the body.
	b := appendText(nil, "from", from)
	b = appendText(b, "to", m.To)
	b = appendText(b, "id", m.ID)
	for _, member := range []struct{ name, value string }{{"kind", string(m.Kind)}, {"reply_to", m.ReplyTo}} {
		if member.value != "" {
			b = appendText(b, member.name, member.value)
		}
	}
	if m.Ack {
		b = append(b, `,"ack":true`...)
	}
	b = append(append(b, `,"body":`...), m.Body...)
	var s struct {
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
	}
	err := c.call(ctx, "send", json.RawMessage(object(b)), "sent", &s)
	return Sent{ID: s.ID, Duplicate: s.Duplicate}, err
}

// Recent returns the newest messages of an agent's inbox, newest first; at most
// limit, by default agentrelay.DefaultLimit.
func (c *Control) Recent(ctx context.Context, agent string, limit int) ([]agentrelay.Message, error) {
	return c.Query(ctx, agent, Filter{Limit: limit})
}

// Query returns messages of an agent's inbox that f selects, newest first.
func (c *Control) Query(ctx context.Context, agent string, f Filter) ([]agentrelay.Message, error) {
	p := agentParams(agent)
	for _, member := range []struct{ name, value string }{
		{"kind", string(f.Kind)}, {"status", string(f.Status)}, {"from", f.From},
	} {
		if member.value != "" {
			p[member.name] = member.value
		}
	}
	if f.Limit != 0 {
		p["limit"] = f.Limit
	}
	if f.MaxBytes != 0 {
		p["max_bytes"] = f.MaxBytes
	}
	var list []agentrelay.Message
	return list, c.call(ctx, "query", p, "messages", &list)
}

// Status tells where messages stand that an agent sent or received, in the
// order of ids. Their bodies are null.
func (c *Control) Status(ctx context.Context, agent string, ids ...string) ([]agentrelay.Message, error) {
	p := agentParams(agent)
	p["ids"] = ids
	var list []agentrelay.Message
	return list, c.call(ctx, "status", p, "messages", &list)
}

// Requeue has a message delivered again, its attempts counted anew.
func (c *Control) Requeue(ctx context.Context, messageID string) error {
	return c.call(ctx, "requeue", map[string]string{"message_id": messageID}, "ok", nil)
}

// Cancel ends a message as failed; its sender gets the receipt.
func (c *Control) Cancel(ctx context.Context, messageID string) error {
	return c.call(ctx, "cancel", map[string]string{"message_id": messageID}, "ok", nil)
}

// FireHook has the scripts run that are installed for a kind of event, and
// waits until they have ended. The payload is a JSON object; nil is {}.
func (c *Control) FireHook(ctx context.Context, kind HookKind, payload json.RawMessage) (HookResult, error) {
	b := appendText(nil, "hook", string(kind))
	if payload != nil {
		b = append(append(b, `,"payload":`...), payload...)
	}
	var r HookResult
	return r, c.call(ctx, "fire_hook", json.RawMessage(object(b)), "hook", &r)
}

// Reload has the broker read its config again. It returns the keys that have
// changed and count only once the broker is started again.
func (c *Control) Reload(ctx context.Context) (needsRestart []string, err error) {
	var data struct {
		NeedsRestart []string `json:"needs_restart"`
	}
	err = c.call(ctx, "reload", nil, "ok", &data)
	return data.NeedsRestart, err
}
