package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/store"
)

const (
	pullWait = agentrelay.MaxWaitSeconds * time.Second
	// takeFor is the lease of what is taken up, carryFor that of what may have
	// been sent: it does not end by itself.
	takeFor  = time.Hour
	carryFor = 10 * 365 * 24 * time.Hour
	// retryAfter is the pause before what failed for a passing reason.
	retryAfter = time.Second
)

// errNotSent says that nothing of a message was sent, so that it may wait again.
var errNotSent = errors.New("not sent")

// sendAll carries out messages to the connector, one after the other, while it
// is online, until ctx ends.
func (l *link) sendAll(ctx context.Context) {
	// What an earlier run could not answer comes first.
	if !l.insist(ctx, "what was left leased cannot be answered right now", func() error { return l.recover(ctx) }) {
		return
	}
	for {
		online, done, err := l.online(ctx)
		if err != nil {
			return
		}
		err = l.sendNext(ctx, online)
		done()
		if err != nil && ctx.Err() == nil {
			l.log.Warn("messages to the connector cannot be taken up right now; it is tried again", "error", err)
			l.pause(ctx)
		}
	}
}

// insist tries something until it succeeds, or ctx has ended.
func (l *link) insist(ctx context.Context, fault string, try func() error) bool {
	for {
		err := try()
		if err == nil {
			return true
		}
		l.log.Error(fault, "error", err)
		if ctx.Err() != nil {
			return false
		}
		l.pause(ctx)
	}
}

func (l *link) pause(ctx context.Context) {
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// sendNext waits for a message and carries it out. online ends when the connector
// is no longer online.
func (l *link) sendNext(ctx, online context.Context) error {
	list, err := l.broker.Pull(online, store.LeaseRequest{Agent: l.name, Limit: 1, MaxBytes: agentrelay.MaxPageBytes, For: takeFor}, pullWait)
	if len(list) == 0 {
		if online.Err() != nil {
			return nil
		}
		return err
	}
	m := &list[0]
	if m.Type == agentrelay.TypeAck {
		return l.noteReceipt(ctx, m)
	}
	result, err := l.carryOut(online, m)
	if err != nil {
		m.InPlace = true
		l.insist(ctx, "a message that was not sent cannot be put back right now", func() error {
			return l.broker.Release(ctx, l.name, list)
		})
		if errors.Is(err, errNotSent) {
			return nil
		}
		return err
	}
	l.answer(ctx, m, result)
	return nil
}

// noteReceipt takes the receipt for an event, which the connector has no use
// for.
func (l *link) noteReceipt(ctx context.Context, m *store.Leased) error {
	_, err := l.broker.Settle(ctx, store.Settlement{Agent: l.name, ID: m.ID, LeaseID: m.LeaseID, Outcome: agentrelay.OutcomeCompleted})
	l.log.Debug("an event was answered", "event", m.ReplyTo)
	return err
}

// carryOut sends a message, and returns what became of it. With an error,
// nothing of it was sent.
func (l *link) carryOut(ctx context.Context, m *store.Leased) (outcome, error) {
	answered, err := l.answered(ctx, m.ReplyTo)
	if err != nil {
		return outcome{}, err
	}
	o, err := parseOrder(m.Body, answered)
	if err != nil {
		return refused(codeBadRequest, faultOf(err)), nil
	}
	if o.interrupt != nil {
		return l.sendInterrupt(ctx, m, *o.interrupt)
	}
	identity, ok := l.identity(o)
	if !ok {
		return refused(codeNoPlatform, "the relay has no account with this connector on that platform; see identities in the broker's config"), nil
	}
	// What it did not describe at first it may yet.
	described, cancel := context.WithTimeout(ctx, l.handshake())
	defer cancel()
	d, err := l.transport.Await(described, identity.Platform)
	switch {
	case ctx.Err() != nil:
		return outcome{}, errNotSent
	case err != nil:
		return refused(codeNoPlatform, "the connector is online, but has not described this platform"), nil
	case !d.Supports(o.op):
		return refused(codeUnsupportedOp, fmt.Sprintf("the connector does not offer %s on this platform", o.op)), nil
	}
	if err := l.hold(ctx, m); err != nil {
		return outcome{}, err
	}
	return l.sendActions(ctx, m, o, o.actions(m.ID, d), identity)
}

// faultOf is the text of an error for the sender.
func faultOf(err error) string {
	var e *agentrelay.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// answered is the place of the event that a message replies to. It is empty if
// the message replies to nothing of this connector.
func (l *link) answered(ctx context.Context, id string) (place, error) {
	if id == "" {
		return place{}, nil
	}
	known, err := l.broker.Messages(ctx, l.name, []string{id})
	if err != nil {
		return place{}, err
	}
	event, ok := known[id]
	if !ok || event.From != l.name {
		return place{}, nil
	}
	list, err := l.broker.Query(ctx, store.Filter{Agent: event.To, ID: id, Limit: 1, MaxBytes: agentrelay.MaxPageBytes})
	if err != nil || len(list) == 0 {
		return place{}, err // its body was erased
	}
	object, err := agentrelay.ParseObject(list[0].Body)
	if err != nil {
		return place{}, nil // not reached: it was read before it was stored
	}
	return placeOf(object), nil
}

// identity is who carries out an order: the account that got the event that is
// replied to, or the one that the order names, or the first one.
func (l *link) identity(o order) (connector.Identity, bool) {
	if id, ok := l.account(o.answered.platform, o.answered.botID); ok && o.answered.platform != "" {
		return id, true
	}
	return l.account(o.platform, o.botID)
}

// account finds an identity on a platform, that of botID if there is one, or else
// the first.
func (l *link) account(platform, botID string) (found connector.Identity, ok bool) {
	for _, id := range l.Identities {
		if platform != "" && id.Platform != platform {
			continue
		}
		if botID != "" && id.BotID == botID {
			return id, true
		}
		if !ok {
			found, ok = id, true
		}
	}
	return found, ok
}

// hold makes the lease one that does not end: from here on the message may have
// been sent.
func (l *link) hold(ctx context.Context, m *store.Leased) error {
	_, err := l.broker.Renew(ctx, store.Renewal{Agent: l.name, ID: m.ID, LeaseID: m.LeaseID, For: carryFor})
	if err == nil && ctx.Err() != nil {
		err = errNotSent
	}
	return err
}

// sendActions sends an order's actions. A part that fails is the last.
func (l *link) sendActions(ctx context.Context, m *store.Leased, o order, actions []connector.Action, by connector.Identity) (outcome, error) {
	var sent outcome
	for i, a := range actions {
		// What is under way is waited for, whatever becomes of ctx; the transport
		// sees to it that there is a result.
		r, err := l.transport.Send(context.WithoutCancel(ctx), a, by)
		var now outcome
		switch {
		case err == nil:
			now = resulted(r)
		case errors.Is(err, connector.ErrOffline) && i == 0:
			return outcome{}, errNotSent
		case errors.Is(err, connector.ErrOffline):
			now = outcome{failed: true, error: err.Error(), ambiguous: true}
		case errors.Is(err, connector.ErrFrameTooLarge):
			now = refused(codeTooLarge, err.Error())
		default:
			now = refused(codeBadRequest, err.Error())
		}
		if i == 0 && err == nil {
			l.broker.HandedOver([]store.Leased{*m})
		}
		now.messageIDs = sent.messageIDs
		if now.failed && len(actions) > 1 {
			now.error = fmt.Sprintf("part %d of %d: %s", i+1, len(actions), now.error)
		}
		if r.MessageID != "" && !now.failed {
			now.messageIDs = append(now.messageIDs, r.MessageID)
		}
		if o.op == connector.OpGetChatInfo && !now.failed {
			info := r.ChatInfo(a.ChatID)
			now.chatInfo = &info
		}
		if sent = now; now.failed {
			break
		}
	}
	return sent, nil
}

func (l *link) sendInterrupt(ctx context.Context, m *store.Leased, i connector.Interrupt) (outcome, error) {
	if err := l.hold(ctx, m); err != nil {
		return outcome{}, err
	}
	err := l.transport.Interrupt(context.WithoutCancel(ctx), i.SessionKey, i.Reason)
	switch {
	case errors.Is(err, connector.ErrNotSent):
		return outcome{}, errNotSent
	case err != nil:
		return outcome{failed: true, error: err.Error(), ambiguous: true}, nil
	}
	l.broker.HandedOver([]store.Leased{*m})
	return outcome{}, nil
}

// answer ends a message with its receipt. Until that is stored nothing else is
// taken up; after a restart in between the receipt says that it may have been
// sent.
func (l *link) answer(ctx context.Context, m *store.Leased, result outcome) {
	if result.failed {
		l.log.Info("a message was not carried out", "id", m.ID, "code", result.code, "ambiguous", result.ambiguous)
	}
	l.insist(ctx, "the receipt of a message cannot be stored right now", func() error {
		_, err := l.broker.Acknowledge(ctx, result.of(l.name, m.ID))
		if errors.Is(err, agentrelay.ErrNoSuchMessage) {
			return nil // it was forgotten, and its sender with it
		}
		return err
	})
}
