package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// Nothing of what frames hold gets into the log.
func TestLogHoldsNoContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := 0
		r, m := online(t, Options{
			Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Handlers: Handlers{Inbound: func(context.Context, Inbound) error {
				switch n++; n {
				case 1:
					return errors.New("full")
				case 2:
					return Permanent(fmt.Errorf("never: %w", context.Canceled))
				}
				return nil
			}},
		})
		m.say(
			`{"type":"inbound","event":{"text":"canary"},"bufferId":"b1"}`,
			`{"type":"inbound","event":"canary","bufferId":"b2"}`,
			`{"type":"inbound","event":"canary"}`,
			`{"type":"inbound","event":{"canary`,
			`{"type":"canary"}`,
			`{"type":"outbound_result","requestId":"x","result":"canary"}`,
			`{"type":"descriptor","descriptor":{"contract_version":2,"platform":"p","label":"canary"}}`,
		)
		m.want(t, ackFrame("b1"), ackFrame("b2"))
		synctest.Wait()
		m.drop(errors.New("dropped"))
		synctest.Wait()
		r.stop()
		r.wantEnd(t, nil)
		text := log.String()
		for _, event := range []string{"online", "tried again", "set aside", "skipped", "newer contract", "buffer=b1", "connection to the connector ended"} {
			if !strings.Contains(text, event) {
				t.Errorf("the log does not say %q", event)
			}
		}
		if strings.Contains(text, "canary") {
			t.Errorf("the log holds content:\n%s", text)
		}
	})
}

func TestPermanent(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("store: %w", Permanent(cause))
	if !IsPermanent(err) || !errors.Is(err, cause) || err.Error() != "store: cause" || IsPermanent(cause) || IsPermanent(nil) {
		t.Errorf("%v", err)
	}
}
