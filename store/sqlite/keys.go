package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

const (
	keyColumns     = `SELECT agent, id, secret, created_at, not_after, last_used FROM agent_keys `
	keysQuery      = keyColumns + `ORDER BY agent, created_at, id`
	agentKeysQuery = keyColumns + `WHERE agent = ? ORDER BY created_at, id`
	endKeysQuery   = `UPDATE agent_keys SET not_after = ?2 WHERE agent = ?1 AND (not_after IS NULL OR not_after > ?2)`
	dropKeysQuery  = `DELETE FROM agent_keys WHERE agent = ? AND not_after <= ?`
	goodKeysQuery  = `SELECT count(*) FROM agent_keys WHERE agent = ? AND (not_after IS NULL OR not_after > ?)`
	usedKeyQuery   = `UPDATE agent_keys SET last_used = max(last_used, ?) WHERE agent = ? AND id = ?`
)

// AddKey gives an agent one more key.
func (s *Store) AddKey(ctx context.Context, agent string, k store.Key) (store.Agent, error) {
	return s.change(ctx, agent, func(t *tx) error {
		if _, err := t.agent(agent); err != nil {
			return err
		}
		return t.addKey(agent, k)
	})
}

// RotateKey gives an agent one more key, and ends the others.
func (s *Store) RotateKey(ctx context.Context, agent string, k store.Key, end time.Time) (store.Agent, error) {
	return s.change(ctx, agent, func(t *tx) error {
		if _, err := t.agent(agent); err != nil {
			return err
		}
		if err := t.exec(endKeysQuery, agent, end.UnixMilli()); err != nil {
			return err
		}
		return t.addKey(agent, k)
	})
}

func (t *tx) addKey(agent string, k store.Key) error {
	if err := t.exec(dropKeysQuery, agent, t.wall-millis(store.EndedKeyTTL)); err != nil {
		return err
	}
	var good int
	if _, err := t.one(goodKeysQuery, []any{agent, t.wall}, &good); err != nil {
		return err
	}
	if good >= store.MaxKeys {
		return failure(agentrelay.CodeBadRequest, fmt.Sprintf("%q has %d keys that are good, and may not have more; revoke one first", agent, good))
	}
	if err := t.exec(`INSERT INTO agent_keys (agent, id, secret, created_at, not_after) VALUES (?, ?, ?, ?, ?)`,
		agent, k.ID, string(k.Secret), t.wall, nullable(k.NotAfter)); err != nil {
		return err
	}
	return t.exec(`UPDATE agents SET keyed = 1 WHERE name = ?`, agent)
}

// RevokeKey forgets a key.
func (s *Store) RevokeKey(ctx context.Context, agent, keyID string) (store.Agent, error) {
	return s.change(ctx, agent, func(t *tx) error {
		if _, err := t.agent(agent); err != nil {
			return err
		}
		n, err := t.change(`DELETE FROM agent_keys WHERE agent = ? AND id = ?`, agent, keyID)
		if err == nil && n == 0 {
			err = failure(agentrelay.CodeBadRequest, fmt.Sprintf("%q has no key %q", agent, keyID))
		}
		return err
	})
}

// Used records when keys last signed.
func (s *Store) Used(ctx context.Context, used map[store.KeyName]time.Time) error {
	return s.write(ctx, func(t *tx) error {
		for key, at := range used {
			if err := t.exec(usedKeyQuery, at.UnixMilli(), key.Agent, key.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// agentKey is a key and whose it is.
type agentKey struct {
	agent string
	store.Key
}

func scanKey(rows *sql.Rows) (k agentKey, err error) {
	var secret string
	var created, used int64
	var end sql.NullInt64
	err = rows.Scan(&k.agent, &k.ID, &secret, &created, &end, &used)
	k.Secret, k.Created, k.LastUsed = store.Secret(secret), timeOf(created), timeOf(used)
	if end.Valid {
		k.NotAfter = time.UnixMilli(end.Int64)
	}
	return k, err
}
