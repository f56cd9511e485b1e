package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/internal/hook"
	"github.com/agent-relay/agent-relay/store"
)

func event(buffer string, members string) string {
	return `{"type":"inbound","event":{` + members + `},"bufferId":"` + buffer + `"}`
}

func TestInbound(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	// What the relay alone may say is taken out, the rest stays as it is.
	c.say(event("b1", `"text":"hi","source":{"platform":"telegram","chat_id":"c","delivered_via_upstream_relay":true},"n":1e400`))
	c.wantAck("b1")
	m := f.inbox("ben", 1)[0]
	if want := `{"text":"hi","source":{"platform":"telegram","chat_id":"c"},"n":1e400}`; string(m.Body) != want || m.From != "chat" || m.Kind != agentrelay.KindMessage {
		t.Errorf("ben gets %+v with the body %s, want %s", m, m.Body, want)
	}
	c.say(`{"type":"passthrough_forward","forward":{"platform":"telegram","botId":"1","method":"POST","path":"/a?b&c","headers":[["A","b"],["bad"]],"bodyB64":"aGk="},"bufferId":"b2"}`)
	c.wantAck("b2")
	// Sent again it is stored once.
	c.say(`{"type":"passthrough_forward","forward":{"platform":"telegram","botId":"1","method":"POST","path":"/a?b&c","headers":[["A","b"]],"bodyB64":"aGk="},"bufferId":"b2"}`)
	c.wantAck("b2")
	c.say(`{"type":"interrupt_inbound","session_key":"s","chat_id":"c"}`)
	for i, want := range []string{
		`{"type":"passthrough_forward","platform":"telegram","botId":"1","method":"POST","path":"/a?b&c","headers":[["A","b"]],"bodyB64":"aGk="}`,
		`{"type":"interrupt_inbound","session_key":"s","chat_id":"c"}`,
	} {
		if m := f.inbox("ben", 3)[i+1]; string(m.Body) != want || m.Kind != agentrelay.KindRequest {
			t.Errorf("ben gets a %s with %s, want %s", m.Kind, m.Body, want)
		}
	}
}

// An event that comes again is stored once, whatever its spelling; events that
// differ are not lost, even where buffer ids begin anew.
func TestWhatIsTheSame(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	for _, test := range []struct {
		event string
		new   bool
	}{
		{event("1", `"text":"a","message_id":"m1","source":{"platform":"telegram","chat_id":"c"}`), true},
		{event("1", `"source":{"chat_id" : "c","platform":"\u0074elegram"},"message_id":"m1","text":"a"`), false},
		{event("1", `"text":"a","message_id":"m2","source":{"platform":"telegram","chat_id":"c"}`), true},
		{event("1", `"text":"a","message_id":"m1","source":{"platform":"telegram","chat_id":"d"}`), true},
		{event("1", `"text":"a","message_id":"m1","source":{"platform":"irc","chat_id":"c"}`), true},
		{event("2", `"text":"a","message_id":"m1","source":{"platform":"telegram","chat_id":"c"}`), true},
		// Without a name of the platform, the content counts.
		{event("3", `"text":"a","n":10`), true},
		{event("3", `"n":10, "text":"\u0061"`), false},
		{event("3", `"text":"b","n":10`), true},
	} {
		before := len(f.all())
		c.say(test.event)
		if f := c.hear(); f == nil {
			t.Fatal("no ack")
		}
		if stored := len(f.all()) > before; stored != test.new {
			t.Errorf("%s is stored: %v, want %v", test.event, stored, test.new)
		}
	}
	// What has no buffer is not acknowledged, nor sent again: each is one.
	for range 2 {
		c.say(`{"type":"inbound","event":{"text":"ping"}}`)
	}
	f.inbox("ben", 7+2)
}

// all is what ben has.
func (f *fixture) all() []agentrelay.Message {
	f.Helper()
	page, err := f.broker.Poll(f.Context(), store.PollQuery{Agent: "ben", Limit: 5000, MaxBytes: 1 << 30}, 0)
	if err != nil {
		f.Fatal(err)
	}
	return page.Messages
}

func TestRoutes(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b := f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), Routes: []Route{
		{Platform: "irc", ChatID: "c", DeliverTo: "ops"}, {ChatID: "c", DeliverTo: "ann"}, {Platform: "discord", DeliverTo: "ops"},
	}})
	f.run(b)
	c := p.next(t)
	for i, place := range []string{`"platform":"irc","chat_id":"c"`, `"platform":"telegram","chat_id":"c"`, `"platform":"discord","chatId":5`, `"chat_id":"x"`} {
		c.say(event(fmt.Sprint(i), `"source":{`+place+`}`))
		c.wantAck(fmt.Sprint(i)) // also of what nobody is to get: it is set aside
	}
	f.inbox("ops", 2)
	f.inbox("ann", 1)
	if s := b.States()[0]; s.SetAside != 1 || s.Handled != 3 {
		t.Errorf("the connector is %+v", s)
	}
	// ops never registered itself, and is a peer all the same.
	if !strings.Contains(fmt.Sprint(f.broker.Peers()), "ops") {
		t.Errorf("the peers are %v", f.broker.Peers())
	}
}

// Frames that can never be stored are set aside and do not block the rest;
// faults that pass are waited for, in order.
func TestSetAsideAndWait(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b, _ := f.start(p)
	c := p.next(t)
	c.say(event("deep", `"a":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)))
	c.wantAck("deep")
	full := &agentrelay.Error{Code: agentrelay.CodeStorageFull}
	f.store.fail("Enqueue", full)
	c.say(event("1", `"text":"1"`))
	c.say(event("2", `"text":"2"`))
	f.store.until(t, "Enqueue", 3)
	waitFor(t, "the connector is stalled", func() bool { return errors.Is(b.States()[0].Stalled, full) })
	f.store.fail("Enqueue", nil)
	c.wantAck("1")
	c.wantAck("2")
	if list := f.inbox("ben", 2); string(list[0].Body) != `{"text":"1"}` {
		t.Errorf("ben gets %s first", list[0].Body)
	}
	if s := b.States()[0]; s.SetAside != 1 || s.Stalled != nil {
		t.Errorf("the connector is %+v", s)
	}
}

// An agent that an operator removed still gets its events.
func TestRemovedAgent(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	if err := f.broker.RemoveAgent(t.Context(), "ben"); err != nil {
		t.Fatal(err)
	}
	c.say(event("1", `"text":"1"`))
	c.wantAck("1")
	f.inbox("ben", 1)
}

// hooks refuse what is bad, and note the channels.
type hooks struct {
	mu       sync.Mutex
	channels []string
	later    []string
}

func (*hooks) Installed(hook.Kind) bool { return true }

func (h *hooks) FireLater(k hook.Kind, payload json.RawMessage) bool {
	var p struct {
		Channel string
		ID      string `json:"message_id"`
	}
	err := json.Unmarshal(payload, &p)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.later = append(h.later, fmt.Sprint(k, " ", p.ID, " ", p.Channel, " ", err))
	return true
}

func (h *hooks) Enforce(_ context.Context, _ hook.Kind, payload json.RawMessage) hook.Result {
	var p struct{ Channel, Message string }
	err := json.Unmarshal(payload, &p)
	h.mu.Lock()
	h.channels = append(h.channels, p.Channel)
	h.mu.Unlock()
	if err != nil || p.Message == "bad" {
		return hook.Result{Errors: []hook.Failure{{Script: "00-no.sh", Code: 1}}}
	}
	return hook.Result{OK: true}
}

func TestHookRefuses(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.close()
	h := &hooks{}
	boundaries := broker.NewBoundaries(h, true)
	chat := Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben", Identities: []connector.Identity{{Platform: "irc"}, telegram}}
	boundaries.Channels(Channel([]Connector{chat}))
	f.open(boundaries)
	b := f.bridge(chat)
	f.run(b)
	c := p.next(t)
	c.say(event("1", `"text":"bad","source":{"platform":"telegram"}`))
	c.wantAck("1")
	c.say(event("2", `"text":"good"`))
	c.wantAck("2")
	f.inbox("ben", 1)
	f.send("m", `{"chat_id":"c","text":"out","platform":"telegram"}`)
	c.answer(c.outbound(), `{"success":true}`)
	f.receipt(1, "m", `{"status":"ok"}`)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.later, "post-message m telegram <nil>") {
		t.Errorf("fired are %q", h.later)
	}
	if got := fmt.Sprint(h.channels); got != "[telegram irc telegram]" {
		t.Errorf("the channels are %s", got)
	}
	if s := b.States()[0]; s.SetAside != 1 || s.Handled != 1 {
		t.Errorf("the connector is %+v", s)
	}
}

// A backlog of 1,000 events comes over connections that are cut anywhere, and a
// broker that is opened anew: each is stored once, in order, and each frame that
// was acknowledged is stored.
func TestReplay(t *testing.T) {
	const events = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f, p := newFixture(t), newPlatform(t)
	_, stop := f.start(p)
	acked := 0
	for acked < events {
		c := p.next(t)
		cut := random.IntN(300)
		go func(from int) {
			for n := from; n < events; n++ {
				if c.io.Send(c.ctx, []byte(event(fmt.Sprint(n), fmt.Sprintf(`"text":"%d"`, n)))) != nil {
					return
				}
			}
		}(acked)
		for i := 0; i < cut && acked < events; i++ {
			f := c.hear()
			if f == nil {
				break
			}
			if f != (connector.InboundAck{BufferID: fmt.Sprint(acked)}) {
				t.Fatalf("the relay says %#v, want the ack of %d", f, acked)
			}
			acked++
		}
		c.cut()
		if random.IntN(3) == 0 {
			stop()
			f.close()
			f.open(nil)
			_, stop = f.start(p)
		}
	}
	for n, m := range f.inbox("ben", events) {
		if want := fmt.Sprintf(`{"text":"%d"}`, n); string(m.Body) != want {
			t.Fatalf("event %d is %s", n, m.Body)
		}
	}
}

func TestDeliver(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	verifier, err := connector.NewDeliveryVerifier([]string{"key one", "key two"}, connector.DefaultDeliverySkew)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1750000000, 0)
	b, err := Open(t.Context(), Options{Broker: f.broker, MaxBodyBytes: 64, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }, Connectors: []Connector{
		{Name: "chat", Dialer: p.dialer(t), Identities: []connector.Identity{telegram}, DeliverTo: "ben", Delivery: verifier},
		{Name: "mute", Dialer: p.dialer(t), Identities: []connector.Identity{telegram}, DeliverTo: "ben"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	deliver := func(name, key, timestamp, body string) (broker.Sent, error) {
		return b.Deliver(t.Context(), Delivery{name, timestamp, connector.SignDelivery(key, timestamp, []byte(body)), []byte(body)})
	}
	const hi = `{"type":"message","event":{"text":"hi"}}`
	for i, test := range []struct {
		name, key, at, body string
		duplicate           bool
		want                error
	}{
		{"chat", "key one", "1750000000", hi, false, nil},
		{"chat", "key one", "1750000000", hi, true, nil},
		{"chat", "key two", "1750000001", hi, false, nil}, // the same words at another time
		{"chat", "key two", "1750000002", `{"event":{"message_id":"m"}}`, false, nil},
		{"chat", "key two", "1750000300", `{"event":{"message_id" :"m"}}`, true, nil},
		{"chat", "key", "1750000000", hi, false, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonBadSignature}},
		{"chat", "key one", "soon", hi, false, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonBadSignature}},
		{"chat", "key one", "1749999699", hi, false, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonTimestampSkew}},
		{"chat", "key one", "1750000000", `{"event":7}`, false, agentrelay.ErrBadRequest},
		{"chat", "key one", "1750000000", `{"event":{"text":"` + strings.Repeat("x", 64) + `"}}`, false, agentrelay.ErrBodyTooLarge},
		{"mute", "key one", "1750000000", hi, false, &agentrelay.Error{Code: agentrelay.CodeNotFound}},
		{"nobody", "key one", "1750000000", hi, false, &agentrelay.Error{Code: agentrelay.CodeNotFound}},
	} {
		sent, err := deliver(test.name, test.key, test.at, test.body)
		var got, want *agentrelay.Error
		errors.As(err, &got)
		errors.As(test.want, &want)
		if !errors.Is(err, test.want) || want != nil && got.Reason != want.Reason || sent.Duplicate != test.duplicate {
			t.Errorf("delivery %d answers %+v, %v", i, sent, err)
		}
		if got != nil && got.Reason == agentrelay.ReasonTimestampSkew && (got.Skew != -301*time.Second || got.ServerTime != now) {
			t.Errorf("the skew is %+v", got)
		}
	}
	f.inbox("ben", 3)
}

func TestPresence(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b := f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben"})
	if f.online() {
		t.Error("it is online before it was dialled")
	}
	// What is told is every step, however short it was.
	steps := make(chan broker.EventKind, 100)
	f.broker.Subscribe(func(e broker.Event) {
		if e.Agent == "chat" {
			steps <- e.Kind
		}
	})
	want := func(kind broker.EventKind) {
		t.Helper()
		select {
		case got := <-steps:
			if got != kind {
				t.Errorf("told is %s, want %s", got, kind)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never told: %s", kind)
		}
	}
	stop := f.run(b)
	c := p.next(t)
	want(broker.AgentOnline)
	c.cut()
	want(broker.AgentOffline)
	p.next(t)
	want(broker.AgentOnline)
	if !f.online() {
		t.Error("it is not online again")
	}
	stop()
	want(broker.AgentOffline)
	if f.online() {
		t.Error("it is online after the end")
	}
}

// Idle takes leave and stays away, while messages wait; Test comes back.
func TestIdle(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b, _ := f.start(p)
	c := p.next(t)
	waitFor(t, "it is online", f.online)
	left := make(chan State, 1)
	go func() {
		state, err := b.Idle(t.Context(), "chat")
		if err != nil {
			t.Error(err)
		}
		left <- state
	}()
	if f, ok := c.hear().(connector.GoingIdle); !ok {
		t.Errorf("the relay says %#v", f)
	}
	// It still serves until the connector agrees.
	c.say(event("b", `"text":"late"`))
	c.wantAck("b")
	c.say(`{"type":"going_idle_ack"}`)
	if state := <-left; !state.Idle || state.Phase != connector.Stopped {
		t.Errorf("after the leave it is %+v", state)
	}
	f.send("m1", `{"chat_id":"c","text":"1"}`)
	if f.online() {
		t.Error("it is online after the leave")
	}
	back := make(chan State, 1)
	go func() {
		state, err := b.Test(t.Context(), "chat")
		if err != nil {
			t.Error(err)
		}
		back <- state
	}()
	c = p.next(t)
	if state := <-back; state.Idle || state.Phase != connector.Online || state.Descriptors[0].Platform != "telegram" {
		t.Errorf("after the test it is %+v", state)
	}
	if o := c.outbound(); o.Action.Content != "1" {
		t.Errorf("the relay sends %+v", o.Action)
	}
	for _, call := range []func() (State, error){
		func() (State, error) { return b.Test(t.Context(), "nobody") },
		func() (State, error) { return b.Idle(t.Context(), "nobody") },
	} {
		if _, err := call(); !errors.Is(err, &agentrelay.Error{Code: agentrelay.CodeNotFound}) {
			t.Errorf("of nobody: %v", err)
		}
	}
}
