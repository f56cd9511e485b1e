-- +goose Up
-- Times are integer Unix milliseconds.

-- One row: what this database is. The epoch is part of every cursor's tag, so
-- that a database that was replaced is noticed.
CREATE TABLE store (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    epoch      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    probed_at  INTEGER NOT NULL DEFAULT 0
) STRICT;

-- An agent and the position counter of its inbox. A name that never registered
-- has a row once a receipt was put into its inbox. The counter never goes back.
CREATE TABLE agents (
    name          TEXT    PRIMARY KEY,
    registered_at INTEGER,
    last_seen     INTEGER NOT NULL DEFAULT 0,
    position      INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT    NOT NULL UNIQUE,
    sender         TEXT    NOT NULL,
    recipient      TEXT    NOT NULL,
    ts             INTEGER NOT NULL,
    type           TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    ack            INTEGER NOT NULL,
    reply_to       TEXT    NOT NULL,
    root_id        TEXT    NOT NULL,
    parent_id      TEXT    NOT NULL,
    body           BLOB,                        -- NULL once erased
    fingerprint    BLOB    NOT NULL,
    status         TEXT    NOT NULL,
    attempts       INTEGER NOT NULL DEFAULT 0,
    first_position INTEGER NOT NULL,            -- never changes
    position       INTEGER NOT NULL,            -- the next one when queued again
    delivered_at   INTEGER,                     -- first hand-over
    lease_id       TEXT,
    ended_leases   TEXT    NOT NULL DEFAULT '', -- what ended earlier leases, to answer repeats
    receipt_id     TEXT,                        -- the one receipt of this message
    error          TEXT    NOT NULL DEFAULT '',
    expires_at     INTEGER NOT NULL,
    -- 0 retained, 1 expiry was seen, 2 body erased.
    stage          INTEGER NOT NULL DEFAULT 0,
    -- When something is to be done next: the end of the lease while leased;
    -- else, by stage, expiry, erasure, removal.
    due_at         INTEGER NOT NULL
) STRICT;

-- Poll and pull.
CREATE INDEX messages_queued ON messages (recipient, position) WHERE status = 'queued';
-- Recent and query.
CREATE INDEX messages_inbox ON messages (recipient, first_position);
-- The sweep.
CREATE INDEX messages_due ON messages (due_at);
-- Leases that are over in one inbox; leases to move when the clock jumps.
CREATE INDEX messages_leased ON messages (recipient, due_at) WHERE status = 'leased';
-- Expiry to take back when the clock jumps back; erasures to move.
CREATE INDEX messages_expiring ON messages (expires_at) WHERE stage = 1;
