package client

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestPull(t *testing.T) {
	want := agentrelay.Message{
		ID: "m", From: "beta", To: "alpha", TS: time.UnixMilli(1755250000123).UTC(), Type: agentrelay.TypeMessage, Kind: agentrelay.KindRequest, Body: []byte(`{ "x":1}`),
		Status: agentrelay.StatusLeased, Attempts: 1, LeaseID: "l", LeaseUntil: time.UnixMilli(1755250600123),
	}
	p := newPeer(t, says(200, `{"messages":[`+string(want.AppendJSON(nil))+`],"count":1}`))
	c := newClient(t, Options{URL: p.URL})
	for body, o := range map[string]PullOptions{
		`{}`:          {},
		`{"limit":5}`: {Limit: 5},
		`{"limit":5,"max_bytes":6,"leaseSeconds":60,"waitSeconds":30}`: {Limit: 5, MaxBytes: 6, Lease: time.Minute, Wait: 30 * time.Second},
		`{"leaseSeconds":2,"waitSeconds":60}`:                          {Lease: 1100 * time.Millisecond, Wait: time.Hour},
	} {
		got, err := c.Pull(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]agentrelay.Message{want}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if r := p.last(t); r.method != "POST" || r.target != "/v1/pull" || string(r.body) != body {
			t.Errorf("%+v: %s %s %s, want %s", o, r.method, r.target, r.body, body)
		}
	}
}

func TestSettle(t *testing.T) {
	p := newPeer(t, says(200, `{"ok":true,"status":"queued","attempts":2}`))
	c := newClient(t, Options{URL: p.URL})
	for body, s := range map[string]Settlement{
		`{"messageId":"a/b","leaseId":"l","outcome":"completed"}`:               {ID: "a/b", LeaseID: "l", Outcome: agentrelay.OutcomeCompleted},
		`{"messageId":"m","leaseId":"l","outcome":"retry","error":"later\n\""}`: {ID: "m", LeaseID: "l", Outcome: agentrelay.OutcomeRetry, Error: "later\n\""},
	} {
		got, err := c.Settle(t.Context(), s)
		if err != nil || got != (Settled{agentrelay.StatusQueued, 2}) {
			t.Errorf("%+v, %v", got, err)
		}
		if r := p.last(t); r.target != "/v1/ack" || string(r.body) != body {
			t.Errorf("%s %s, want %s", r.target, r.body, body)
		}
	}
}

func TestRenew(t *testing.T) {
	p := newPeer(t, says(200, `{"ok":true,"leaseUntil":1755250600123}`))
	c := newClient(t, Options{URL: p.URL})
	for body, n := range map[string]Renewal{
		`{"messageId":"m","leaseId":"l"}`:                   {ID: "m", LeaseID: "l"},
		`{"messageId":"m","leaseId":"l","leaseSeconds":90}`: {ID: "m", LeaseID: "l", For: 90 * time.Second},
	} {
		until, err := c.Renew(t.Context(), n)
		if err != nil || !until.Equal(time.UnixMilli(1755250600123)) {
			t.Errorf("%v, %v", until, err)
		}
		if r := p.last(t); r.target != "/v1/lease/renew" || string(r.body) != body {
			t.Errorf("%s %s, want %s", r.target, r.body, body)
		}
	}
}

func TestLeaseFailures(t *testing.T) {
	quiet := newClient(t, Options{Transport: noNetwork{t}})
	if _, err := quiet.Settle(t.Context(), Settlement{}); !errors.Is(err, errNoID) {
		t.Errorf("settle without an id: %v", err)
	}
	if _, err := quiet.Renew(t.Context(), Renewal{}); !errors.Is(err, errNoID) {
		t.Errorf("renew without an id: %v", err)
	}
	p := newPeer(t, says(409, `{"error":{"code":"lease_mismatch","message":"another lease"}}`))
	c := newClient(t, Options{URL: p.URL})
	if _, err := c.Pull(t.Context(), PullOptions{}); !errors.Is(err, agentrelay.ErrLeaseMismatch) {
		t.Errorf("pull: %v", err)
	}
	if _, err := c.Settle(t.Context(), Settlement{ID: "m"}); !errors.Is(err, agentrelay.ErrLeaseMismatch) {
		t.Errorf("settle: %v", err)
	}
	if _, err := c.Renew(t.Context(), Renewal{ID: "m"}); !errors.Is(err, agentrelay.ErrLeaseMismatch) {
		t.Errorf("renew: %v", err)
	}
	for _, body := range []string{`{}`, `{"ok":true}`, `{"ok":false,"status":"done","leaseUntil":1,"messages":null}`, `{"ok":true,"leaseUntil":1e300,"status":""}`} {
		p := newPeer(t, says(200, body))
		c := newClient(t, Options{URL: p.URL})
		if _, err := c.Pull(t.Context(), PullOptions{}); !errors.Is(err, ErrNotRelay) {
			t.Errorf("pull answered %s: %v", body, err)
		}
		if _, err := c.Settle(t.Context(), Settlement{ID: "m"}); !errors.Is(err, ErrNotRelay) {
			t.Errorf("settle answered %s: %v", body, err)
		}
		if _, err := c.Renew(t.Context(), Renewal{ID: "m"}); !errors.Is(err, ErrNotRelay) {
			t.Errorf("renew answered %s: %v", body, err)
		}
	}
}
