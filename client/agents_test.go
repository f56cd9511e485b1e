package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestHandshake(t *testing.T) {
	p := newPeer(t, says(200, `{"protocol":"1.0","broker":"agent-relay","version":"v1.2.3","capabilities":{"leaseDelivery":true,"requestReply":true,"filteredQuery":true,"sqlitePersistence":true,"longPoll":true,"leaseRenewal":true,"signedResponses":false,"singleUseTimestamps":false,"more":"x"},"storage":"sqlite"}`))
	got, err := newClient(t, Options{URL: p.URL}).Handshake(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Broker{Protocol: "1.0", Name: "agent-relay", Version: "v1.2.3", Storage: "sqlite", Capabilities: Capabilities{
		LeaseDelivery: true, RequestReply: true, FilteredQuery: true, SQLitePersistence: true, LongPoll: true, LeaseRenewal: true,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r := p.last(t)
	if r.method != "GET" || r.target != "/" {
		t.Errorf("%s %s", r.method, r.target)
	}
	for _, name := range []string{agentrelay.HeaderAgent, agentrelay.HeaderTimestamp, agentrelay.HeaderSignature} {
		if r.header.Get(name) != "" {
			t.Errorf("whoever answers is told %s", name)
		}
	}
}

func TestHandshakeRefuses(t *testing.T) {
	for body, text := range map[string]string{
		`{"protocol":"2.0"}`:  `it speaks protocol "2.0", this client "1.0"`,
		`{"protocol":"1.1"}`:  `"1.1"`,
		`{"protocol":1.0}`:    "no answer of a broker",
		`{"protocol":""}`:     "no answer of a broker",
		`{"name":"other"}`:    "no answer of a broker",
		`<html>hello</html>`:  "no answer of a broker",
		`{"PROTOCOL":"1.0 "}`: "protocol",
	} {
		p := newPeer(t, says(200, body))
		_, err := newClient(t, Options{URL: p.URL}).Handshake(t.Context())
		if !errors.Is(err, ErrNotRelay) || !strings.Contains(err.Error(), "something else answers at "+p.URL) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", body, err, text)
		}
	}
	p := newPeer(t, says(421, `{"error":{"code":"misdirected","message":"not our host"}}`))
	if _, err := newClient(t, Options{URL: p.URL}).Handshake(t.Context()); !errors.Is(err, &agentrelay.Error{Code: agentrelay.CodeMisdirected}) {
		t.Errorf("%v, want misdirected", err)
	}
}

func TestRegister(t *testing.T) {
	p := newPeer(t, says(200, `{"ok":true,"agent":"alpha","ts":1755250000}`))
	if err := newClient(t, Options{URL: p.URL}).Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.last(t); r.method != "POST" || r.target != "/register" || string(r.body) != `{"agent":"alpha"}` {
		t.Errorf("%s %s %s", r.method, r.target, r.body)
	}
	for _, body := range []string{`{"ok":true,"agent":"beta"}`, `{"ok":false,"agent":"alpha"}`, `{}`} {
		p := newPeer(t, says(200, body))
		if err := newClient(t, Options{URL: p.URL}).Register(t.Context()); !errors.Is(err, ErrNotRelay) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestPeers(t *testing.T) {
	p := newPeer(t, says(200, `{"peers":[{"agent":"alpha","online":true,"lastSeen":1755250000},{"agent":"beta","online":false,"lastSeen":0}]}`))
	got, err := newClient(t, Options{URL: p.URL}).Peers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []agentrelay.Peer{{Agent: "alpha", Online: true, LastSeen: time.Unix(1755250000, 0)}, {Agent: "beta"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
