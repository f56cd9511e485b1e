package sqlite

import (
	"database/sql"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// queueRetry is when a sender may try again whose recipient's inbox is full.
const queueRetry = 5 * time.Second

// admit gives a message the next position of its recipient's inbox, and counts
// it there. A refusal leaves nothing behind.
func (t *tx) admit(m agentrelay.Message) (position int64, refused, err error) {
	var waiting, size int64
	var most sql.NullInt64
	registered, err := t.one(`UPDATE agents SET position = position + 1, waiting = waiting + 1, waiting_bytes = waiting_bytes + ?
		WHERE name = ? AND registered_at IS NOT NULL RETURNING position, waiting, waiting_bytes, max_queued`,
		[]any{len(m.Body), m.To}, &position, &waiting, &size, &most)
	if err != nil {
		return 0, nil, err
	}
	if !registered {
		return 0, noSuchAgent(m.To), nil
	}
	t.writes++
	if refused = checkQuota(t.options, m.To, most, waiting, size); refused != nil {
		err = t.dismiss(m)
	}
	return position, refused, err
}

// dismiss takes admit back.
func (t *tx) dismiss(m agentrelay.Message) error {
	return t.exec(`UPDATE agents SET position = position - 1, waiting = waiting - 1, waiting_bytes = waiting_bytes - ? WHERE name = ?`,
		len(m.Body), m.To)
}

// checkQuota refuses a message with which so much would wait. most is what an
// operator set for the agent, in place of Options.MaxQueued.
func checkQuota(o store.Options, agent string, most sql.NullInt64, waiting, size int64) error {
	if !most.Valid {
		most.Int64 = int64(o.MaxQueued)
	}
	if waiting <= most.Int64 && size <= o.MaxQueuedBytes {
		return nil
	}
	return &agentrelay.Error{
		Code: agentrelay.CodeQueueFull, RetryAfter: queueRetry,
		Message: fmt.Sprintf("the inbox of %q is full: %d messages wait there to be fetched; nothing was stored; try again later, or have the agent fetch its messages",
			agent, waiting-1),
	}
}

// waiting is what is to be added to an inbox's counters.
type waiting struct{ messages, bytes int64 }

// add notes that a message began to wait, or ended that.
func (w *waiting) add(r *row) {
	now := r.waits()
	if now == r.counted {
		return
	}
	sign := int64(1)
	if !now {
		sign = -1
	}
	w.messages += sign
	w.bytes += sign * r.size
	r.counted = now
}

// count adds to the counters of an inbox.
func (t *tx) count(agent string, w waiting) error {
	if w == (waiting{}) {
		return nil
	}
	return t.exec(`UPDATE agents SET waiting = waiting + ?, waiting_bytes = waiting_bytes + ? WHERE name = ?`,
		w.messages, w.bytes, agent)
}

// recount brings the counters of a message's inbox up to what became of it.
func (t *tx) recount(r *row) error {
	var w waiting
	w.add(r)
	return t.count(r.To, w)
}
