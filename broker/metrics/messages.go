package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// messageCounters count what becomes of messages.
type messageCounters struct {
	acceptedMessage, acceptedReceipt  prometheus.Counter
	delivered, ackedOK, ackedError    prometheus.Counter
	failedAcknowledged, failedGivenUp prometheus.Counter
	failedCancelled                   prometheus.Counter
	expired, requeued                 prometheus.Counter
	duplicate, conflict               prometheus.Counter
	damaged                           prometheus.Counter
}

func newMessageCounters(r registrar) messageCounters {
	one := func(name, help string) prometheus.Counter { return r.counter(name, help).WithLabelValues() }
	accepted := r.counter("messages_accepted_total", "Messages and receipts put into an inbox.", "type")
	acked := r.counter("messages_acked_total", "Messages that their recipient ended.", "outcome")
	failed := r.counter("messages_failed_total", "Messages that became failed.", "reason")
	return messageCounters{
		acceptedMessage:    accepted.WithLabelValues(string(agentrelay.TypeMessage)),
		acceptedReceipt:    accepted.WithLabelValues(string(agentrelay.TypeAck)),
		delivered:          one("messages_delivered_total", "First hand-overs of messages."),
		ackedOK:            acked.WithLabelValues("ok"),
		ackedError:         acked.WithLabelValues("error"),
		failedAcknowledged: failed.WithLabelValues("acknowledged"),
		failedCancelled:    failed.WithLabelValues("cancelled"),
		failedGivenUp:      failed.WithLabelValues("attempts"),
		expired:            one("messages_expired_total", "Messages whose time was over."),
		requeued:           one("messages_requeued_total", "Messages that were queued again."),
		duplicate:          one("messages_duplicate_total", "Messages that were sent again, and not stored."),
		damaged:            one("store_damaged_total", "Things in the store that were found to be damaged."),
		conflict:           one("messages_conflict_total", "Messages refused because their id was that of another."),
	}
}

// Events counts steps of messages, as the store tells them.
func (m *Metrics) Events(events []store.Event) {
	for i := range events {
		m.messages.count(&events[i])
	}
}

// Damaged counts what the store found to be damaged.
func (m *Metrics) Damaged(store.Damage) { m.messages.damaged.Inc() }

func (c *messageCounters) count(e *store.Event) {
	switch e.Kind {
	case store.EventAccepted:
		if e.Type == agentrelay.TypeAck {
			c.acceptedReceipt.Inc()
		} else {
			c.acceptedMessage.Inc()
		}
	case store.EventDelivered:
		c.delivered.Inc()
	case store.EventDone:
		c.ackedOK.Inc()
	case store.EventFailed:
		switch {
		case e.GivenUp:
			c.failedGivenUp.Inc()
		case e.Cancelled:
			c.failedCancelled.Inc()
		default:
			c.ackedError.Inc()
			c.failedAcknowledged.Inc()
		}
	case store.EventExpired:
		c.expired.Inc()
	case store.EventRequeued:
		c.requeued.Inc()
	}
}
