package sqlite

import (
	"context"
	"fmt"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Requeue queues a message again, whatever became of it.
func (s *Store) Requeue(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		r, err := t.mustFind(id)
		if err != nil {
			return err
		}
		if r.stage == stageErased {
			return failure(agentrelay.CodeBadRequest, "the body of this message was erased after its time; send it anew")
		}
		r.Attempts, r.Error, r.expiresAt = 0, "", t.wall+millis(t.options.TTL)
		if err := t.exec(`UPDATE messages SET expires_at = ?, receipt_id = NULL WHERE seq = ?`, r.expiresAt, r.seq); err != nil {
			return err
		}
		return t.queue(r)
	})
}

// Cancel ends a message that is not over.
func (s *Store) Cancel(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		r, err := t.mustFind(id)
		if err != nil {
			return err
		}
		switch status := r.view(t.instant).Status; {
		case status == agentrelay.StatusFailed && r.Error == store.Cancelled:
			return nil
		case status != agentrelay.StatusQueued && status != agentrelay.StatusLeased:
			return failure(agentrelay.CodeBadRequest, fmt.Sprintf("only what is queued or leased can be cancelled; this message is %s", status))
		}
		r.cancelled = true
		if err := t.end(r, agentrelay.StatusFailed, store.Cancelled); err != nil || r.Type == agentrelay.TypeAck {
			return err
		}
		_, err = t.receipt(r, true, store.Cancelled)
		return err
	})
}
