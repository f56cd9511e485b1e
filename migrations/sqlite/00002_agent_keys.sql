-- +goose Up
-- Times are integer Unix milliseconds.

-- What an operator has set for an agent.
ALTER TABLE agents ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN allowed_targets TEXT; -- a JSON list of names; NULL: anyone
ALTER TABLE agents ADD COLUMN max_queued INTEGER;   -- NULL: the broker's
-- Set with an agent's first key: nothing but its own keys is good for it.
ALTER TABLE agents ADD COLUMN keyed INTEGER NOT NULL DEFAULT 0;

-- The secrets that are an agent's own.
CREATE TABLE agent_keys (
    agent      TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    secret     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    not_after  INTEGER,                    -- NULL: never ends
    last_used  INTEGER NOT NULL DEFAULT 0, -- 0: never
    PRIMARY KEY (agent, id)
) STRICT, WITHOUT ROWID;
