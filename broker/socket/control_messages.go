package socket

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

// send accepts a message, as POST /messages does for whoever signed as "from".
func (c *Control) send(ctx context.Context, p params) (result, error) {
	from, err := p.agent("from")
	if err != nil {
		return result{}, err
	}
	if _, present := p.Get("body"); !present {
		return result{}, invalid(`"body" is missing; it may be any JSON value`)
	}
	m, err := agentrelay.ParseEnvelope(p.envelope(), from)
	if err != nil {
		return result{}, invalid("%s", strings.ReplaceAll(err.Error(), `"replyTo"`, `"reply_to"`))
	}
	sent, err := c.o.Broker.Send(ctx, m)
	if err != nil {
		return result{}, err
	}
	b := agentrelay.AppendString([]byte(`{"id":`), sent.ID)
	b = strconv.AppendBool(append(b, `,"duplicate":`...), sent.Duplicate)
	return result{"sent", append(b, '}')}, nil
}

// envelope is what POST /messages would get for the same message. A reply is
// one to the message it answers.
func (p params) envelope() []byte {
	b := []byte{'{'}
	add := func(name string, raw json.RawMessage) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), name...), `":`...), raw...)
	}
	for _, name := range []string{"id", "to", "kind", "ack", "body"} {
		if raw, ok := p.Get(name); ok && (string(raw) != "null" || name == "body") {
			add(name, raw)
		}
	}
	if raw, ok := p.given("reply_to"); ok {
		add("replyTo", raw)
		if kind, _, _ := p.Text("kind"); kind == string(agentrelay.KindReply) {
			add("parentId", raw)
		}
	}
	return append(b, '}')
}

func (c *Control) recent(ctx context.Context, p params) (result, error) {
	return c.list(ctx, p, store.Filter{})
}

func (c *Control) query(ctx context.Context, p params) (result, error) {
	var text [4]string
	for i, name := range []string{"kind", "status", "from", "to"} {
		var err error
		if text[i], _, err = p.Text(name); err != nil {
			return result{}, err
		}
	}
	f := store.Filter{Kind: agentrelay.Kind(text[0]), Status: agentrelay.Status(text[1]), From: text[2], To: text[3]}
	if !slices.Contains([]agentrelay.Kind{"", agentrelay.KindMessage, agentrelay.KindRequest, agentrelay.KindReply}, f.Kind) {
		return result{}, invalid(`"kind" must be "message", "request" or "reply"`)
	}
	if !slices.Contains([]agentrelay.Status{
		"", agentrelay.StatusQueued, agentrelay.StatusLeased, agentrelay.StatusDone, agentrelay.StatusFailed, agentrelay.StatusExpired,
	}, f.Status) {
		return result{}, invalid(`"status" must be "queued", "leased", "done", "failed" or "expired"`)
	}
	return c.list(ctx, p, f)
}

// list answers what a filter picks of an agent's inbox.
func (c *Control) list(ctx context.Context, p params, f store.Filter) (result, error) {
	var err error
	if f.Agent, err = p.agent("agent"); err != nil {
		return result{}, err
	}
	limit, err := p.integer("limit", 1, math.MaxInt64)
	if err != nil {
		return result{}, err
	}
	maxBytes, err := p.integer("max_bytes", 1, math.MaxInt64)
	if err != nil {
		return result{}, err
	}
	f.Limit, f.MaxBytes = agentrelay.DefaultLimit, agentrelay.MaxPageBytes
	if limit != nil {
		f.Limit = int(min(*limit, agentrelay.MaxLimit))
	}
	if maxBytes != nil {
		f.MaxBytes = int(min(*maxBytes, agentrelay.MaxPageBytes))
	}
	found, err := c.o.Broker.Query(ctx, f)
	if err != nil {
		return result{}, err
	}
	b := []byte{'['}
	for i := range found {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEnvelope(b, &found[i])
	}
	return result{"messages", append(b, ']')}, nil
}

// status tells where messages stand that the agent sent or received, in the
// order of ids. Bodies are not read.
func (c *Control) status(ctx context.Context, p params) (result, error) {
	agent, err := p.agent("agent")
	if err != nil {
		return result{}, err
	}
	raw, _ := p.Get("ids")
	ids, err := parseTexts("ids", orNull(raw))
	if err != nil {
		return result{}, err
	}
	if len(ids) == 0 || len(ids) > agentrelay.MaxStatusIDs {
		return result{}, invalid(`"ids" must be a list of 1 to %d message ids`, agentrelay.MaxStatusIDs)
	}
	found, err := c.o.Broker.Messages(ctx, agent, ids)
	if err != nil {
		return result{}, err
	}
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		m, known := found[id]
		if !known {
			b = append(agentrelay.AppendString(append(b, `{"id":`...), id), `,"status":"not_found","attempts":0}`...)
			continue
		}
		m.Body = json.RawMessage("null")
		b = appendEnvelope(b, &m)
		if !m.DeliveredAt.IsZero() {
			b = append(agentrelay.AppendTime(append(b[:len(b)-1], `,"deliveredAt":"`...), m.DeliveredAt), `"}`...)
		}
	}
	return result{"messages", append(b, ']')}, nil
}

func (c *Control) requeue(ctx context.Context, p params) (result, error) {
	return onMessage(ctx, p, c.o.Broker.Requeue)
}

func (c *Control) cancel(ctx context.Context, p params) (result, error) {
	return onMessage(ctx, p, c.o.Broker.Cancel)
}

func onMessage(ctx context.Context, p params, do func(context.Context, string) error) (result, error) {
	id, err := p.messageID()
	if err != nil {
		return result{}, err
	}
	return okResult, do(ctx, id)
}

// fireHook fires an event and waits for its scripts.
func (c *Control) fireHook(ctx context.Context, p params) (result, error) {
	name, err := p.text("hook")
	if err != nil {
		return result{}, err
	}
	kind := hook.Kind(name)
	if err := kind.Err(); err != nil {
		return result{}, invalid("%v", err)
	}
	payload, _ := p.given("payload")
	if payload != nil && payload[0] != '{' {
		return result{}, invalid(`"payload" must be an object, such as {}`)
	}
	return result{"hook", c.o.Hooks.Fire(ctx, kind, payload).AppendJSON(nil, maxAnswer)}, nil
}

// reload has the config read again.
func (c *Control) reload(ctx context.Context, _ params) (result, error) {
	unchanged, err := c.o.Reload(ctx)
	if err != nil || len(unchanged) == 0 {
		return okResult, err
	}
	return dataResult("ok", map[string][]string{"needs_restart": unchanged})
}

// statsData is how the broker stands.
type statsData struct {
	Version       string  `json:"daemon_version"`
	Started       moment  `json:"started"`
	Uptime        float64 `json:"uptime_seconds"`
	Agents        int     `json:"agents"`
	Online        int     `json:"agents_online"`
	Queued        int     `json:"queued"`
	Leased        int     `json:"leased"`
	OldestQueued  moment  `json:"oldest_queued"`
	DatabaseBytes int64   `json:"database_bytes"`
	LogBytes      int64   `json:"log_bytes"`
	Clients       int     `json:"control_clients"`
	Subscribers   int     `json:"control_subscribers"`
	Unreadable    uint64  `json:"control_unreadable_lines"`
	Lost          uint64  `json:"control_lost_events"`
}

func (c *Control) stats(ctx context.Context, _ params) (result, error) {
	held, err := c.o.Broker.Stats(ctx)
	if err != nil {
		return result{}, err
	}
	own := c.Stats()
	d := statsData{
		Version: c.o.Version, Started: moment(c.started), Uptime: time.Since(c.started).Round(time.Millisecond).Seconds(),
		Queued: held.Queued, Leased: held.Leased, OldestQueued: moment(held.OldestQueued),
		DatabaseBytes: held.DatabaseBytes, LogBytes: held.LogBytes,
		Clients: own.Clients, Subscribers: own.Subscribers, Unreadable: own.Unreadable, Lost: own.Lost,
	}
	for _, p := range c.o.Broker.Peers() {
		d.Agents++
		if p.Online {
			d.Online++
		}
	}
	return dataResult("stats", d)
}
