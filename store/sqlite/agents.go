package sqlite

import (
	"context"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// Register makes an agent known.
func (s *Store) Register(ctx context.Context, agent string) error {
	return s.write(ctx, func(t *tx) error {
		return t.exec(`INSERT INTO agents (name, registered_at, last_seen) VALUES (?1, ?2, ?2)
			ON CONFLICT (name) DO UPDATE SET registered_at = COALESCE(registered_at, ?2), last_seen = max(last_seen, ?2)`,
			agent, t.wall)
	})
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
	stmt, err := s.read.get(`SELECT name, last_seen FROM agents WHERE registered_at IS NOT NULL ORDER BY name`)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.Query()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []store.Agent
	for rows.Next() {
		var a store.Agent
		var seen int64
		if err := rows.Scan(&a.Name, &seen); err != nil {
			return nil, err
		}
		if seen > 0 {
			a.LastSeen = time.UnixMilli(seen)
		}
		list = append(list, a)
	}
	return list, rows.Err()
}
