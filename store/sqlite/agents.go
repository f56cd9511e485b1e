package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

const (
	agentColumns = `SELECT name, last_seen, description, allowed_targets, max_queued, keyed, waiting, waiting_bytes FROM agents `
	agentQuery   = agentColumns + `WHERE name = ? AND registered_at IS NOT NULL`
	agentsQuery  = agentColumns + `WHERE registered_at IS NOT NULL ORDER BY name`

	allBacklogQuery = `SELECT recipient, 'queued', count(*) FROM messages WHERE status = 'queued' GROUP BY recipient
		UNION ALL SELECT recipient, 'leased', count(*) FROM messages WHERE status = 'leased' GROUP BY recipient`
	oneBacklogQuery = `SELECT ?1, 'queued', count(*) FROM messages WHERE recipient = ?1 AND status = 'queued'
		UNION ALL SELECT ?1, 'leased', count(*) FROM messages WHERE recipient = ?1 AND status = 'leased'`
)

// Register makes an agent known.
func (s *Store) Register(ctx context.Context, agent string) error {
	return s.write(ctx, func(t *tx) error { return t.register(agent, t.wall) })
}

// register makes an agent known that was seen at a time, 0 if it was not.
func (t *tx) register(agent string, seen int64) error {
	return t.exec(`INSERT INTO agents (name, registered_at, last_seen) VALUES (?1, ?2, ?3)
		ON CONFLICT (name) DO UPDATE SET registered_at = COALESCE(registered_at, ?2), last_seen = max(last_seen, ?3)`,
		agent, t.wall, seen)
}

// Touch records when agents were last seen.
func (s *Store) Touch(ctx context.Context, seen map[string]time.Time) error {
	return s.write(ctx, func(t *tx) error {
		for agent, at := range seen {
			if err := t.exec(`UPDATE agents SET last_seen = max(last_seen, ?) WHERE name = ? AND registered_at IS NOT NULL`,
				at.UnixMilli(), agent); err != nil {
				return err
			}
		}
		return nil
	})
}

// Agents lists the registered agents.
func (s *Store) Agents(context.Context) ([]store.Agent, error) {
	agents, err := readAll(&s.read, scanAgent, agentsQuery)
	if err != nil {
		return nil, err
	}
	keys, err := readAll(&s.read, scanKey, keysQuery)
	if err != nil {
		return nil, err
	}
	byAgent := map[string][]store.Key{}
	for _, k := range keys {
		byAgent[k.agent] = append(byAgent[k.agent], k.Key)
	}
	for i := range agents {
		agents[i].Keys = byAgent[agents[i].Name]
	}
	return agents, nil
}

// Backlog counts what waits.
func (s *Store) Backlog(_ context.Context, agent string) (map[string]store.Backlog, error) {
	type count struct {
		agent, status string
		n             int
	}
	query, args := allBacklogQuery, []any(nil)
	if agent != "" {
		query, args = oneBacklogQuery, []any{agent}
	}
	counts, err := readAll(&s.read, func(rows *sql.Rows) (c count, err error) {
		return c, rows.Scan(&c.agent, &c.status, &c.n)
	}, query, args...)
	backlog := map[string]store.Backlog{}
	for _, c := range counts {
		b := backlog[c.agent]
		if c.status == string(agentrelay.StatusQueued) {
			b.Queued = c.n
		} else {
			b.Leased = c.n
		}
		backlog[c.agent] = b
	}
	return backlog, err
}

// change writes what do does to an agent, which must be registered when it
// returns, and reads the agent.
func (s *Store) change(ctx context.Context, agent string, do func(*tx) error) (changed store.Agent, err error) {
	err = s.write(ctx, func(t *tx) error {
		if err := do(t); err != nil {
			return err
		}
		var err error
		changed, err = t.agent(agent)
		return err
	})
	return changed, err
}

// AddAgent registers an agent with its first key.
func (s *Store) AddAgent(ctx context.Context, agent string, p store.AgentPatch, k store.Key) (store.Agent, error) {
	return s.change(ctx, agent, func(t *tx) error {
		var keyed bool
		if _, err := t.one(`SELECT keyed FROM agents WHERE name = ?`, []any{agent}, &keyed); err != nil {
			return err
		}
		if keyed {
			return failure(agentrelay.CodeBadRequest, fmt.Sprintf("%q was given keys already; add a key, rotate them, or remove the agent first", agent))
		}
		if err := t.register(agent, 0); err != nil {
			return err
		}
		if err := t.patch(agent, p); err != nil {
			return err
		}
		return t.addKey(agent, k)
	})
}

// UpdateAgent sets what p says.
func (s *Store) UpdateAgent(ctx context.Context, agent string, p store.AgentPatch) (store.Agent, error) {
	return s.change(ctx, agent, func(t *tx) error { return t.patch(agent, p) })
}

// RemoveAgent leaves of an agent the positions of its inbox.
func (s *Store) RemoveAgent(ctx context.Context, agent string) error {
	return s.write(ctx, func(t *tx) error {
		if _, err := t.agent(agent); err != nil {
			return err
		}
		if err := t.exec(`DELETE FROM agent_keys WHERE agent = ?`, agent); err != nil {
			return err
		}
		return t.exec(`UPDATE agents SET registered_at = NULL, last_seen = 0, description = '', allowed_targets = NULL,
			max_queued = NULL, keyed = 0 WHERE name = ?`, agent)
	})
}

func (t *tx) patch(agent string, p store.AgentPatch) error {
	old, err := t.agent(agent)
	if err != nil {
		return err
	}
	a := p.Over(old)
	var targets sql.NullString
	if a.AllowedTargets != nil {
		list, err := json.Marshal(a.AllowedTargets)
		if err != nil {
			return err
		}
		targets = sql.NullString{String: string(list), Valid: true}
	}
	return t.exec(`UPDATE agents SET description = ?, allowed_targets = ?, max_queued = ? WHERE name = ?`,
		a.Description, targets, sql.NullInt64{Int64: a.MaxQueued, Valid: a.MaxQueued != 0}, agent)
}

// agent reads a registered agent with its keys.
func (t *tx) agent(name string) (store.Agent, error) {
	agents, err := readAll(&t.writer.stmts, scanAgent, agentQuery, name)
	switch {
	case err != nil:
		return store.Agent{}, err
	case len(agents) == 0:
		return store.Agent{}, noSuchAgent(name)
	}
	keys, err := readAll(&t.writer.stmts, scanKey, agentKeysQuery, name)
	for _, k := range keys {
		agents[0].Keys = append(agents[0].Keys, k.Key)
	}
	return agents[0], err
}

func scanAgent(rows *sql.Rows) (a store.Agent, err error) {
	var seen int64
	var targets sql.NullString
	var most sql.NullInt64
	if err := rows.Scan(&a.Name, &seen, &a.Description, &targets, &most, &a.Keyed, &a.Waiting, &a.WaitingBytes); err != nil {
		return a, err
	}
	a.LastSeen, a.MaxQueued = timeOf(seen), most.Int64
	if targets.Valid {
		if err := json.Unmarshal([]byte(targets.String), &a.AllowedTargets); err != nil {
			return a, fmt.Errorf("allowed targets of agent %s: %w", a.Name, err)
		}
	}
	return a, nil
}

// timeOf is a stored time, 0 being none.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// readAll reads a query to its end.
func readAll[T any](from *statements, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	stmt, err := from.get(query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.Query(args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, rows.Err()
}
