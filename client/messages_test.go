package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestSend(t *testing.T) {
	p := newPeer(t, says(201, `{"accepted":true,"id":"i/1","duplicate":false,"recipient":{"online":true,"lastSeen":1755250000.5},"more":1}`))
	c := newClient(t, Options{URL: p.URL})
	sent, err := c.Send(t.Context(), Outgoing{
		To: "beta", ID: "i/1", Kind: agentrelay.KindReply, ReplyTo: "r\"é", RootID: "ro", ParentID: "pa", Ack: true, Body: json.RawMessage("{ \"n\" : 1e400,\r\n\"n\":\"\u2028\\u00e9\"}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Sent{ID: "i/1", Recipient: agentrelay.Peer{Agent: "beta", Online: true, LastSeen: time.Unix(1755250000, 500_000_000)}}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r := p.last(t)
	wantBody := `{"to":"beta","id":"i/1","kind":"reply","replyTo":"r\"é","rootId":"ro","parentId":"pa","ack":true,"body":{ "n" : 1e400,` + "\r\n" + `"n":"` + "\u2028" + `\u00e9"}}`
	if r.method != "POST" || r.target != "/messages" || string(r.body) != wantBody {
		t.Errorf("%s %s\n%s, want\n%s", r.method, r.target, r.body, wantBody)
	}
	if r.header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("content type %q", r.header.Get("Content-Type"))
	}
}

func TestSendMakesAnID(t *testing.T) {
	var id string
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct{ ID, To string }
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		id = m.ID
		says(200, `{"accepted":true,"id":"`+m.ID+`","duplicate":true,"recipient":{"online":false,"lastSeen":0}}`)(w, r)
	})
	sent, err := newClient(t, Options{URL: p.URL}).Send(t.Context(), Outgoing{To: "beta"})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.Version() != 7 {
		t.Errorf("id %q: %v", id, err)
	}
	want := Sent{ID: id, Duplicate: true, Recipient: agentrelay.Peer{Agent: "beta"}}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSendOtherAnswers(t *testing.T) {
	for _, body := range []string{
		`{"accepted":true,"id":"another","recipient":{}}`, `{"accepted":false,"id":"x"}`, `{"id":"x"}`, `{"accepted":true}`, `{"accepted":"yes","id":"x"}`,
	} {
		p := newPeer(t, says(201, body))
		sent, err := newClient(t, Options{URL: p.URL}).Send(t.Context(), Outgoing{To: "beta", ID: "x"})
		if !errors.Is(err, ErrNotRelay) || sent.ID != "" {
			t.Errorf("%s: %+v, %v", body, sent, err)
		}
	}
}

type noNetwork struct{ t *testing.T }

func (n noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("%s %s was sent", r.Method, r.URL)
	return nil, io.EOF
}

func TestSendRefusesWhatIsNoMessage(t *testing.T) {
	c := newClient(t, Options{Transport: noNetwork{t}})
	for says, m := range map[string]Outgoing{
		`"to" is missing`:        {},
		`"to" must be`:           {To: "a b"},
		`itself`:                 {To: "alpha"},
		`"id" must be`:           {To: "beta", ID: "../x"},
		`"kind" must be`:         {To: "beta", Kind: "question"},
		`"replyTo" is not valid`: {To: "beta", ReplyTo: "\xff"},
		`"rootId" must be`:       {To: "beta", RootID: strings.Repeat("r", 2000)},
		`not one valid JSON`:     {To: "beta", Body: json.RawMessage(`{`)},
		`one valid JSON`:         {To: "beta", Body: json.RawMessage(`1,"to":"gamma"`)},
		`valid JSON value`:       {To: "beta", Body: json.RawMessage{}},
		`UTF-8`:                  {To: "beta", Body: json.RawMessage("\"\xff\"")},
	} {
		_, err := c.Send(t.Context(), m)
		if !errors.Is(err, agentrelay.ErrBadRequest) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want bad_request with %q", m, err, says)
		}
	}
}

func TestTextBody(t *testing.T) {
	for text, want := range map[string]string{
		"hello":         `{"text":"hello"}`,
		"":              `{"text":""}`,
		"a \"b\"\n\x00": `{"text":"a \"b\"\n\u0000"}`,
		"\xff":          "{\"text\":\"\ufffd\"}",
	} {
		if got := string(TextBody(text)); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}

func TestPollTargets(t *testing.T) {
	p := newPeer(t, says(200, `{"messages":[],"cursor":null}`))
	c := newClient(t, Options{URL: p.URL})
	for want, o := range map[string]PollOptions{
		"/messages":                             {},
		"/messages?since=cursor%3Aab%3A12":      {Since: "cursor:ab:12"},
		"/messages?since=a%2Fb%2Bc%26d%20e":     {Since: "a/b+c&d e"},
		"/messages?limit=200":                   {Limit: 200},
		"/messages?wait=30":                     {Wait: 30 * time.Second},
		"/messages?wait=1":                      {Wait: time.Millisecond},
		"/messages?wait=2":                      {Wait: 1500 * time.Millisecond},
		"/messages?wait=60":                     {Wait: time.Hour},
		"/messages?max_bytes=1000":              {MaxBytes: 1000},
		"/messages?limit=1&max_bytes=2&since=x": {Limit: 1, MaxBytes: 2, Since: "x", Wait: -1},
	} {
		page, err := c.Poll(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r := p.last(t); r.method != "GET" || r.target != want || len(r.body) != 0 {
			t.Errorf("%+v: %s %s %q, want %s", o, r.method, r.target, r.body, want)
		}
		if len(page.Messages) != 0 || page.Cursor != "" || page.Reset {
			t.Errorf("page %+v", page)
		}
	}
}

func TestPollKeepsBodies(t *testing.T) {
	bodies := []string{
		`12345678901234567890.10`, `{"b":1,"a":2,"b":3}`, `{ "x" :` + "\n" + ` [] }`, `"\u0041\/😊` + "\u2028" + `"`, `null`, `"<&>"`, strings.Repeat("[", 8990) + strings.Repeat("]", 8990),
	}
	m := agentrelay.Message{From: "beta", To: "alpha", TS: time.UnixMilli(1755250000123).UTC(), Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Status: agentrelay.StatusQueued}
	answer := []byte(`{"messages":[`)
	var want []agentrelay.Message
	for i, body := range bodies {
		m.ID, m.Body = string(rune('a'+i)), json.RawMessage(body)
		if i > 0 {
			answer = append(answer, ',')
		}
		answer = m.AppendJSON(answer)
		want = append(want, m)
	}
	answer = append(answer, `],"cursor":"cursor:ab:7","reset":true}`...)
	p := newPeer(t, says(200, string(answer)))
	page, err := newClient(t, Options{URL: p.URL}).Poll(t.Context(), PollOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Page{Messages: want, Cursor: "cursor:ab:7", Reset: true}, page); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for i, body := range bodies {
		if string(page.Messages[i].Body) != body {
			t.Errorf("body %.40q comes back as %.40q", body, page.Messages[i].Body)
		}
	}
}

func TestPollOtherAnswers(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"cursor":"x"}`, `{"messages":null}`, `{"messages":{}}`, `{"messages":[1]}`, `{"messages":[{"id":1}]}`, `{"messages":[],"cursor":5}`,
	} {
		p := newPeer(t, says(200, body))
		if page, err := newClient(t, Options{URL: p.URL}).Poll(t.Context(), PollOptions{}); !errors.Is(err, ErrNotRelay) {
			t.Errorf("%s: %+v, %v", body, page, err)
		}
	}
}

func TestAck(t *testing.T) {
	p := newPeer(t, says(201, `{"accepted":true,"id":"receipt"}`))
	c := newClient(t, Options{URL: p.URL})
	for _, a := range []struct {
		id           string
		o            AckOptions
		target, body string
	}{
		{"m1", AckOptions{}, "/messages/m1/ack", `{"status":"ok"}`},
		{"m1", AckOptions{Failed: true}, "/messages/m1/ack", `{"status":"error"}`},
		{"m1", AckOptions{Error: "no \"way\""}, "/messages/m1/ack", `{"status":"error","error":"no \"way\""}`},
		{"a/b/ack", AckOptions{}, "/messages/a%2Fb%2Fack/ack", `{"status":"ok"}`},
		{"a+b", AckOptions{}, "/messages/a+b/ack", `{"status":"ok"}`},
		{"..x", AckOptions{}, "/messages/..x/ack", `{"status":"ok"}`},
		{"100%?#é ", AckOptions{}, "/messages/100%25%3F%23%C3%A9%20/ack", `{"status":"ok"}`},
		{"._~:@!$&'()*+,;=-", AckOptions{}, "/messages/._~:@%21$&%27%28%29%2A+%2C%3B=-/ack", `{"status":"ok"}`},
	} {
		receipt, err := c.Ack(t.Context(), a.id, a.o)
		if err != nil || receipt != "receipt" {
			t.Errorf("%s: %q, %v", a.id, receipt, err)
		}
		if r := p.last(t); r.method != "POST" || r.target != a.target || string(r.body) != a.body {
			t.Errorf("%s: %s %s %s, want %s %s", a.id, r.method, r.target, r.body, a.target, a.body)
		}
	}
}

func TestAckFailures(t *testing.T) {
	if _, err := newClient(t, Options{Transport: noNetwork{t}}).Ack(t.Context(), "", AckOptions{}); !errors.Is(err, errNoID) {
		t.Errorf("without an id: %v", err)
	}
	p := newPeer(t, says(404, `{"error":{"code":"no_such_message","message":"gone"}}`))
	if _, err := newClient(t, Options{URL: p.URL}).Ack(t.Context(), "x", AckOptions{}); !errors.Is(err, agentrelay.ErrNoSuchMessage) {
		t.Errorf("%v", err)
	}
	for _, body := range []string{`{"accepted":true}`, `{"id":"x"}`} {
		p := newPeer(t, says(201, body))
		if id, err := newClient(t, Options{URL: p.URL}).Ack(t.Context(), "x", AckOptions{}); !errors.Is(err, ErrNotRelay) || id != "" {
			t.Errorf("%s: %q, %v", body, id, err)
		}
	}
}
