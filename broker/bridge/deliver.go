package bridge

import (
	"context"
	"errors"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
)

// Delivery is an event that a connector posted: what its headers say, and its
// body as received.
type Delivery struct {
	Connector            string
	Timestamp, Signature string
	Body                 []byte
}

// Deliver stores an event that a connector posted. It is CodeNotFound if this
// one may not post, and CodeUnauthenticated if the signature does not hold; then
// as Send. The same delivery again is a duplicate.
func (b *Bridge) Deliver(ctx context.Context, d Delivery) (broker.Sent, error) {
	l, err := b.find(d.Connector)
	if err != nil {
		return broker.Sent{}, err
	}
	if l.Delivery == nil {
		return broker.Sent{}, &agentrelay.Error{Code: agentrelay.CodeNotFound, Message: "this connector has no delivery_keys_file in the broker's config"}
	}
	now := b.now()
	if err := l.Delivery.Verify(d.Timestamp, d.Signature, d.Body, now); err != nil {
		l.log.Info("delivery refused", "reason", err)
		return broker.Sent{}, refusedDelivery(err, d.Timestamp, now)
	}
	f, err := connector.ParseDelivery(d.Body)
	if err != nil {
		return broker.Sent{}, &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: err.Error()}
	}
	f.Authenticated = true
	return l.event(ctx, f, d.Timestamp+"."+d.Signature)
}

// refusedDelivery is the answer to a delivery that does not verify.
func refusedDelivery(err error, timestamp string, now time.Time) error {
	e := &agentrelay.Error{
		Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonBadSignature,
		Message: "the signature does not fit the delivery; check the key, and that the bytes sent are the bytes signed",
	}
	if errors.Is(err, connector.ErrSkew) {
		e.Reason, e.Message = agentrelay.ReasonTimestampSkew, "the delivery's timestamp is too far from the broker's clock; set the clock"
		e.ServerTime = now
		if given, err := agentrelay.ParseTimestamp(timestamp); err == nil {
			e.Skew = given.Time().Sub(now)
		}
	}
	return e
}
