-- +goose Up
-- A notice is what the broker itself sends, such as a receipt; it counts toward
-- no quota. What was sent before tells by its type alone.
ALTER TABLE messages ADD COLUMN notice INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET notice = 1 WHERE status = 'queued' AND type = 'ack';

-- What waits in an inbox and counts toward its quota: queued, never handed
-- over, and no notice. bytes are those of bodies.
ALTER TABLE agents ADD COLUMN waiting       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN waiting_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE agents SET (waiting, waiting_bytes) = (
    SELECT count(*), COALESCE(sum(length(body)), 0) FROM messages
    WHERE recipient = agents.name AND status = 'queued' AND delivered_at IS NULL AND notice = 0
);

-- How many commits there were. A file beside the database says so too, so that
-- a database that lost some is noticed.
ALTER TABLE store ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
