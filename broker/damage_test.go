package broker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/store"
)

func TestDamageIsNotHealthy(t *testing.T) {
	var log bytes.Buffer
	d := NewDamage(slog.New(slog.NewTextHandler(&log, nil)))
	if err := d.err(); err != nil {
		t.Errorf("nothing is damaged, and yet %v", err)
	}
	d.Observe(store.Damage{ID: "m1", What: "first"})
	d.Observe(store.Damage{What: "second"})
	if err := d.err(); err == nil || !strings.Contains(err.Error(), "damaged: first") {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(log.String(), "damaged"); n != 2 {
		t.Errorf("%d lines with the word, want one for each:\n%s", n, log.String())
	}
	b := &Broker{options: Options{Damage: d}}
	if err := b.Health(t.Context()); err == nil {
		t.Error("a broker with a damaged store is healthy")
	}
}
