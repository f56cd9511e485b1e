package bridge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker/connector"
	"github.com/agent-relay/agent-relay/store"
)

// sentText is what TestOutbound's first send looks like on the wire.
const sentMetadata = `{"idempotency_key":"m1","channel_id":"telegram","conversation_id":"c1","durability":"required"}`

func TestOutbound(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	waitFor(t, "the peer is online", f.online)
	f.send("m1", `{"chat_id":"c1","text":"hello"}`)
	f.send("m2", `{"chat_id":7,"text":"again","reply_to":"q","thread_id":"t"}`)
	o := c.outbound()
	if a := o.Action; a.Op != connector.OpSend || a.ChatID != "c1" || a.Content != "hello" || a.ReplyTo != "" || string(a.Metadata) != sentMetadata || o.Identity != telegram {
		t.Errorf("the relay asks for %+v of %+v", a, o.Identity)
	}
	c.answer(o, `{"success":true,"message_id":"p1"}`)
	f.receipt(1, "m1", `{"status":"ok","message_ids":["p1"]}`)
	o = c.outbound()
	if a := o.Action; a.ChatID != "7" || a.ReplyTo != "q" || !strings.Contains(string(a.Metadata), `"thread_id":"t"`) {
		t.Errorf("the relay asks for %+v", a)
	}
	c.answer(o, `{"success":false,"error":"no","code":"egress_declined"}`)
	f.receipt(2, "m2", `{"status":"error","error":"no","code":"egress_declined"}`)
	states, err := f.broker.Messages(t.Context(), "ann", []string{"m1", "m2"})
	if err != nil || states["m1"].Status != agentrelay.StatusDone || states["m2"].Status != agentrelay.StatusFailed || states["m2"].Error != "no" {
		t.Errorf("the messages are %+v, %v", states, err)
	}
}

// What has to be answered without the connector, or by a single frame.
func TestOrders(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	const declined = `{"success":false,"error":"e","ambiguous":true}`
	cases := []struct{ body, asked, result, receipt string }{
		{body: `[]`, receipt: `{"status":"error","error":"the body must be a JSON object, such as {}","code":"bad_request"}`},
		{body: `{"chat_id":"c"}`, receipt: `{"status":"error","error":"\"text\" is missing or blank; say something, or give a payload","code":"bad_request"}`},
		{body: `{"chat_id":"c","text":7}`, receipt: `{"status":"error","error":"\"text\" must be a string","code":"bad_request"}`},
		{body: `{"text":"x"}`, receipt: `{"status":"error","error":"\"chat_id\" is missing; name the chat, or reply to an event of this connector that is still kept","code":"bad_request"}`},
		{body: `{"chat_id":{},"text":"x"}`, receipt: `{"status":"error","error":"\"chat_id\" must be a string that is not empty","code":"bad_request"}`},
		{body: `{"chat_id":"c","payload":7}`, receipt: `{"status":"error","error":"\"payload\" must be an object","code":"bad_request"}`},
		{body: `{"chat_id":"c","payload":{"kind":"song"}}`, receipt: `{"status":"error","error":"read a payload: \"kind\" must be text, media, voice, files, poll, presentation_blocks or native_channel_data","code":"bad_request"}`},
		{body: `{"chat_id":"c","text":"x","platform":"irc"}`, receipt: `{"status":"error","error":"the relay has no account with this connector on that platform; see identities in the broker's config","code":"no_such_platform"}`},
		{body: `{"op":"dance","chat_id":"c"}`, receipt: `{"status":"error","error":"\"op\" must be send, edit, typing, get_chat_info or follow_up","code":"bad_request"}`},
		{body: `{"op":"edit","chat_id":"c","text":"x"}`, receipt: `{"status":"error","error":"the action edit needs message_id","code":"bad_request"}`},
		{body: `{"op":"follow_up","session_key":"s","kind":"k","text":"x"}`, receipt: `{"status":"error","error":"the connector does not offer follow_up on this platform","code":"unsupported_op"}`},
		{body: `{"interrupt":{}}`, receipt: `{"status":"error","error":"\"session_key\" of the interrupt is missing","code":"bad_request"}`},
		{body: `{"interrupt":{"session_key":"s","reason":"r"}}`, asked: `{"type":"interrupt","session_key":"s","reason":"r"}`, receipt: `{"status":"ok"}`},
		{
			body: `{"chat_id":"c","payload":{"kind":"voice","media_url":"u"}}`, result: declined, receipt: `{"status":"error","error":"e","ambiguous":true}`,
			asked: `{"op":"send","chat_id":"c","content":"u","reply_to":null,"metadata":{"idempotency_key":"m13","channel_id":"telegram","conversation_id":"c","durability":"required","payload":{"kind":"voice","media_url":"u"}}}`,
		},
		{
			body: `{"op":"edit","chat_id":"c","message_id":5,"content":"x"}`, result: `{"success":true}`, receipt: `{"status":"ok"}`,
			asked: `{"op":"edit","chat_id":"c","message_id":"5","content":"x","metadata":{}}`,
		},
		{
			body: `{"op":"typing","chat_id":"c","thread_id":"t"}`, result: `{"success":false}`, receipt: `{"status":"error","error":"the connector gave no reason"}`,
			asked: `{"op":"typing","chat_id":"c","metadata":{"thread_id":"t"}}`,
		},
		{
			body: `{"op":"get_chat_info","chat_id":"c"}`, result: `{"success":true,"chat_info":{"name":"A"}}`, receipt: `{"status":"ok","chat_info":{"name":"A","type":"dm"}}`,
			asked: `{"op":"get_chat_info","chat_id":"c"}`,
		},
	}
	for i, test := range cases {
		id := fmt.Sprint("m", i)
		f.send(id, test.body)
		if test.asked != "" {
			frame := c.hear()
			asked := string(frame.AppendJSON(nil))
			o, isAction := frame.(connector.Outbound)
			if isAction {
				asked = string(o.Action.AppendJSON(nil))
			}
			if asked != test.asked {
				t.Errorf("%s: the relay says %s, want %s", test.body, asked, test.asked)
			}
			if isAction {
				c.answer(o, test.result)
			}
		}
		f.receipt(i+1, id, test.receipt)
	}
}

func TestLongTexts(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	f.send("m1", `{"chat_id":"c","text":"the first line\nand the second one","reply_to":"q"}`)
	for i, part := range []string{"the first line", "and the second one"} {
		o := c.outbound()
		if o.Action.Content != part || !strings.Contains(string(o.Action.Metadata), fmt.Sprintf(`"idempotency_key":"m1#%d"`, i+1)) || (o.Action.ReplyTo == "q") != (i == 0) {
			t.Errorf("part %d is %+v", i+1, o.Action)
		}
		c.answer(o, fmt.Sprintf(`{"success":true,"message_id":%d}`, i))
	}
	f.receipt(1, "m1", `{"status":"ok","message_ids":["0","1"]}`)

	// A part that fails is the last.
	f.send("m2", `{"chat_id":"c","text":"the first line\nand the second one"}`)
	c.answer(c.outbound(), `{"success":true,"message_id":"2"}`)
	c.answer(c.outbound(), `{"success":false,"error":"no"}`)
	f.receipt(2, "m2", `{"status":"error","error":"part 2 of 2: no","message_ids":["2"]}`)

	// So is one before which the connection ended.
	f.send("m3", `{"chat_id":"c","text":"the first line\nand the second one"}`)
	c.answer(c.outbound(), `{"success":true,"message_id":"3"}`)
	c.outbound()
	c.cut()
	f.receipt(3, "m3", `{"status":"error","error":"part 2 of 2: relay transport connection lost","ambiguous":true,"message_ids":["3"]}`)
}

// Messages wait for the connector, and none is sent twice when the connection
// drops between a frame and its result.
func TestDrops(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b, _ := f.start(p)
	for i := range 30 {
		f.send(fmt.Sprint("m", i), fmt.Sprintf(`{"chat_id":"c","text":"%d"}`, i))
	}
	heard := 0
	c := p.next(t)
	for heard < 30 {
		o := c.outbound()
		if want := fmt.Sprint(heard); o.Action.Content != want {
			t.Fatalf("the relay sends %s, want %s", o.Action.Content, want)
		}
		if heard++; heard%3 == 0 {
			c.cut()
			c = p.next(t)
			continue
		}
		c.answer(o, `{"success":true}`)
	}
	for i, m := range f.inbox("ann", 30) {
		want := `{"status":"ok"}`
		if (i+1)%3 == 0 {
			want = `{"status":"error","error":"relay transport connection lost","ambiguous":true}`
		}
		if m.ReplyTo != fmt.Sprint("m", i) || string(m.Body) != want {
			t.Errorf("receipt %d is of %s: %s, want %s", i, m.ReplyTo, m.Body, want)
		}
	}
	if s := b.States(); s[0].Connections < 10 {
		t.Errorf("there were %d connections", s[0].Connections)
	}
}

// What was not sent goes back to where it was, uncounted.
func TestNotSent(t *testing.T) {
	f := newFixture(t)
	p := newPlatform(t, `{"type":"descriptor","descriptor":{"contract_version":1,"platform":"other"}}`)
	b := f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben"})
	for _, id := range []string{"m1", "m2", "m3"} {
		f.send(id, `{"chat_id":"c","text":"`+id+`"}`)
	}
	f.run(b)
	c := p.next(t)
	// The first message waits, under its lease, for its platform's descriptor.
	waitFor(t, "m1 is leased", func() bool { return f.status("m1").Status == agentrelay.StatusLeased })
	c.cut()
	c = p.next(t)
	waitFor(t, "m1 is leased again", func() bool { return f.status("m1").Status == agentrelay.StatusLeased })
	c.say(described)
	for _, id := range []string{"m1", "m2", "m3"} {
		o := c.outbound()
		if o.Action.Content != id {
			t.Errorf("the relay sends %s, want %s", o.Action.Content, id)
		}
		c.answer(o, `{"success":true}`)
	}
	f.inbox("ann", 3)
	if m := f.status("m1"); m.Attempts != 0 || m.Status != agentrelay.StatusDone {
		t.Errorf("m1 is %+v", m)
	}
}

// A platform that the connector does not describe holds up nobody for ever.
func TestNotDescribed(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	b := f.bridgeWith(Connector{
		Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben", Identities: []connector.Identity{telegram, {Platform: "irc"}},
	}, connector.Limits{Handshake: 500 * time.Millisecond})
	f.run(b)
	c := p.next(t)
	f.send("m1", `{"chat_id":"c","text":"1","platform":"irc"}`)
	f.send("m2", `{"chat_id":"c","text":"2"}`)
	f.receipt(1, "m1", `{"status":"error","error":"the connector is online, but has not described this platform","code":"no_such_platform"}`)
	if o := c.outbound(); o.Action.Content != "2" {
		t.Errorf("the relay asks for %+v", o.Action)
	}
}

func (f *fixture) status(id string) agentrelay.Message {
	f.Helper()
	known, err := f.broker.Messages(f.Context(), "ann", []string{id})
	if err != nil {
		f.Fatal(err)
	}
	return known[id]
}

// Faults of the store neither lose a message nor send it twice.
func TestStoreFaults(t *testing.T) {
	broken := errors.New("broken for a while")
	f, p := newFixture(t), newPlatform(t)
	f.start(p)
	c := p.next(t)
	// Before the frame is written.
	f.store.fail("Renew", broken)
	f.store.fail("Release", broken)
	f.send("m1", `{"chat_id":"c","text":"1"}`)
	f.store.until(t, "Release", 1)
	f.store.fail("Release", nil)
	f.store.until(t, "Renew", 2)
	f.store.fail("Renew", nil)
	o := c.outbound()
	// Before the receipt is stored.
	f.store.fail("Acknowledge", broken)
	c.answer(o, `{"success":true}`)
	f.store.until(t, "Acknowledge", 1)
	f.send("m2", `{"chat_id":"c","text":"2"}`)
	f.store.fail("Acknowledge", nil)
	f.receipt(1, "m1", `{"status":"ok"}`)
	if o := c.outbound(); o.Action.Content != "2" {
		t.Errorf("the relay sends %s", o.Action.Content)
	}
	if n := f.status("m1").Attempts; n != 0 {
		t.Errorf("m1 took %d attempts", n)
	}
}

// What was leased when the process ended is answered at the start, once, and
// the receipts for events are no messages.
func TestRecovery(t *testing.T) {
	f, p := newFixture(t), newPlatform(t)
	f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben"})
	f.send("m1", `{"chat_id":"c","text":"1"}`)
	f.send("m2", `{"chat_id":"c","text":"2"}`)
	if _, err := f.broker.Pull(t.Context(), store.LeaseRequest{Agent: "chat", Limit: 1, MaxBytes: 1 << 20, For: carryFor}, 0); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.open(nil)
	b := f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ben"})
	f.receipt(1, "m1", string(interruptedOutcome.body()))
	f.run(b)
	c := p.next(t)
	o := c.outbound()
	if o.Action.Content != "2" {
		t.Errorf("the relay sends %s", o.Action.Content)
	}
	c.answer(o, `{"success":true}`)
	f.receipt(2, "m2", `{"status":"ok"}`)
}

func TestReplies(t *testing.T) {
	discord := connector.Identity{Platform: "discord", BotID: "2"}
	second := connector.Identity{Platform: "discord", BotID: "3"}
	f, p := newFixture(t), newPlatform(t, described, `{"type":"descriptor","descriptor":{"contract_version":1,"platform":"discord"}}`)
	b := f.bridge(Connector{Name: "chat", Dialer: p.dialer(t), DeliverTo: "ann", Identities: []connector.Identity{telegram, discord, second}})
	f.run(b)
	c := p.next(t)
	c.say(`{"type":"inbound","event":{"text":"hi","source":{"platform":"discord","botId":"3","chat_id":"c9","threadId":4},"message_id":"e1"},"bufferId":"b"}`)
	c.wantAck("b")
	event := f.inbox("ann", 1)[0].ID
	for i, test := range []struct {
		replyTo, body     string
		by                connector.Identity
		chat, reply, more string
	}{
		{event, `{"text":"x"}`, second, "c9", "e1", `"thread_id":"4"`},
		{event, `{"text":"x","reply_to":null,"thread_id":"5","platform":"telegram"}`, second, "c9", "", `"thread_id":"5"`},
		{event, `{"text":"x","chat_id":"c8"}`, second, "c8", "", `"conversation_id":"c8","durability"`},
		{"", `{"text":"x","chat_id":"c8","platform":"discord"}`, discord, "c8", "", `"channel_id":"discord"`},
		{"", `{"text":"x","chat_id":"c8","platform":"discord","bot_id":3}`, second, "c8", "", `"channel_id":"discord"`},
		{"unknown", `{"text":"x","chat_id":"c8"}`, telegram, "c8", "", `"channel_id":"telegram"`},
	} {
		f.sendReply(fmt.Sprint("r", i), test.replyTo, test.body)
		o := c.outbound()
		if o.Identity != test.by || o.Action.ChatID != test.chat || o.Action.ReplyTo != test.reply || !strings.Contains(string(o.Action.Metadata), test.more) {
			t.Errorf("%s as a reply to %q is %+v of %+v", test.body, test.replyTo, o.Action, o.Identity)
		}
		c.answer(o, `{"success":true}`)
	}
	// The agent's receipt for the event is not for the connector.
	if _, err := f.broker.Acknowledge(t.Context(), store.Acknowledgement{Agent: "ann", ID: event}); err != nil {
		t.Fatal(err)
	}
	f.send("last", `{"chat_id":"c","text":"last"}`)
	if o := c.outbound(); o.Action.Content != "last" {
		t.Errorf("the relay asks for %+v", o.Action)
	}
}
