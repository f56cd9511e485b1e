package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// fill stores n messages for an agent: m0001, m0002, … in no certain order.
func (r *relay) fill(to string, n int) {
	r.t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- r.enqueue(to, fmt.Sprintf("m%04d", i+1), []byte(`{}`)) }()
	}
	for range n {
		if err := <-errs; err != nil {
			r.t.Fatal(err)
		}
	}
}

// enqueue stores a message that no request brought.
func (r *relay) enqueue(to, id string, body []byte) error {
	_, err := r.store.Store.Enqueue(context.Background(), agentrelay.Message{
		ID: id, From: "ann", To: to, Type: agentrelay.TypeMessage, Kind: agentrelay.KindMessage, Body: body,
	})
	return err
}

// messages counts those in an answer; to read large ones takes long.
func (a answer) messages() int {
	a.t.Helper()
	a.want(http.StatusOK, nil)
	return strings.Count(a.body, `,"leaseId":`)
}

func TestLimit(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	r.fill("ben", 201)
	for text, want := range map[string]int{
		``: 50, `NaN`: 50, `null`: 50, `x`: 50, `5x`: 50, `0x10`: 50, `1_0`: 50, `Infinity`: 50, `-`: 50, `1e`: 50, `true`: 50,
		`5`: 5, `5.9`: 5, `5e0`: 5, `+5`: 5, `%35`: 5, `"5"`: 5, `-1`: 1, `0`: 1, `0.5`: 1, `-1e999`: 1, `200`: 200, `201`: 200, `1e9`: 200, `1e999`: 200,
		`5&limit=7`: 5,
	} {
		if got := ben.get("/messages?limit=" + text).messages(); got != want {
			t.Errorf("?limit=%s returns %d messages, want %d", text, got, want)
		}
	}
	if got := ben.get("/messages?x=%26limit=7&%6cimit=5").messages(); got != 5 {
		t.Errorf("an escaped name of a parameter returns %d messages", got)
	}
	if got := ben.get("/messages?LIMIT=5").messages(); got != 50 {
		t.Errorf("?LIMIT=5 returns %d messages", got)
	}
	for _, target := range []string{"/v1/recent", "/v1/messages/query"} {
		for text, want := range map[string]int{
			`null`: 50, `true`: 50, `[]`: 50, `[5]`: 50, `{}`: 50, `"x"`: 50, `"NaN"`: 50, `""`: 50, `"5x"`: 50,
			`5`: 5, `5.9`: 5, `"5"`: 5, `"5.9"`: 5, `" 7 "`: 7, `-1`: 1, `0`: 1, `"-3"`: 1, `200`: 200, `1e9`: 200, `"201"`: 200, `1e999`: 200,
			`7,"limit":3`: 3,
		} {
			if got := ben.post(target, `{"limit":`+text+`}`).messages(); got != want {
				t.Errorf("%s with limit %s returns %d messages, want %d", target, text, got, want)
			}
		}
		if got := ben.post(target, `{"Limit":5}`).messages(); got != 50 {
			t.Errorf("%s with Limit 5 returns %d messages", target, got)
		}
	}
	left := 201
	for _, c := range []struct {
		body string
		want int
	}{{``, 50}, {`{"limit":null}`, 50}, {`{"limit":"5"}`, 5}, {`{"limit":-1}`, 1}, {`{"limit":1e9}`, 95}, {`{}`, 0}} {
		got := ben.post("/v1/pull", c.body).messages()
		if left -= got; got != c.want {
			t.Errorf("pull %s leases %d messages, want %d", c.body, got, c.want)
		}
	}
	if left != 0 {
		t.Errorf("%d messages are left", left)
	}
}

func TestMaxBytes(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1", "m2", "m3", "m4") // bodies of 10 bytes
	for text, want := range map[string]int{
		``: 4, `x`: 4, `-1`: 1, `0`: 1, `1`: 1, `10`: 1, `19`: 1, `20`: 2, `29.9`: 2, `30`: 3, `"30"`: 3, `1e9`: 4,
	} {
		if p := ben.poll("?max_bytes=" + text); len(p.Messages) != want {
			t.Errorf("?max_bytes=%s returns %d messages, want %d", text, len(p.Messages), want)
		}
	}
	for text, want := range map[string]int{`null`: 4, `true`: 4, `20`: 2, `"20"`: 2, `0`: 1} {
		for _, target := range []string{"/v1/recent", "/v1/messages/query"} {
			if got := len(ben.list(target, `{"max_bytes":`+text+`}`)); got != want {
				t.Errorf("%s with max_bytes %s returns %d messages, want %d", target, text, got, want)
			}
		}
	}
	// Pull leases only what it returns.
	if got := idsOf(ben.pull(`{"max_bytes":25}`)); len(got) != 2 {
		t.Errorf("leased %v, want two", got)
	}
	if got := ben.poll("").Messages; len(got) != 2 {
		t.Errorf("%v are still queued, want two", idsOf(got))
	}
}

// A page stops at 4 MiB of bodies, whatever is asked for.
func TestPageStopsAtFourMebibytes(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	for i := range 3 {
		if err := r.enqueue("ben", fmt.Sprint("big", i), []byte(`"`+strings.Repeat("x", 2<<20-2)+`"`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := ben.get("/messages?max_bytes=1e9").messages(); got != 2 {
		t.Errorf("a page has %d of three messages of 2 MiB, want 2", got)
	}
}

func TestLeaseSeconds(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	m := ben.pullOne(``)
	wantUntil := func(got *int64, seconds int64) {
		t.Helper()
		if want := start.UnixMilli() + seconds*1000; got == nil || *got != want {
			t.Errorf("the lease ends at %v, want %d", got, want)
		}
	}
	wantUntil(m.LeaseUntil, 600)
	renew := func(member string) answer {
		return ben.post("/v1/lease/renew", fmt.Sprintf(`{"messageId":"m","leaseId":%q%s}`, *m.LeaseID, member))
	}
	var renewed struct {
		OK         bool
		LeaseUntil *int64
	}
	renew(``).want(http.StatusOK, &renewed)
	wantUntil(renewed.LeaseUntil, 600)
	for text, seconds := range map[string]int64{
		`1`: 1, `86400`: 86400, `"60"`: 60, `"1"`: 1, `"86400"`: 86400, `600e-1`: 60, `6e1`: 60, `"0060"`: 60,
	} {
		renew(`,"leaseSeconds":`+text).want(http.StatusOK, &renewed)
		wantUntil(renewed.LeaseUntil, seconds)
		ann.post("/messages", `{"to":"ben"}`).want(http.StatusCreated, nil)
		wantUntil(ben.pullOne(`{"leaseSeconds":`+text+`}`).LeaseUntil, seconds)
	}
	ann.send(ben, "untouched")
	for _, text := range []string{
		`0`, `86401`, `-1`, `"6x"`, `""`, `" 60"`, `"60.0"`, `"6e1"`, `"-60"`, `"+60"`, `"0"`, `"86401"`, `1.5`, `0.999`, `null`, `true`, `[]`, `[60]`, `{}`, `1e400`, `1e18`, `"\u0036"`,
	} {
		renew(`,"leaseSeconds":`+text).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
		ben.post("/v1/pull", `{"leaseSeconds":`+text+`}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	ben.wantState("untouched", "queued", 0)
}

// serveDirectly has the API answer a call without a connection.
func (r *relay) serveDirectly(c call) answer {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, r.request(c))
	return answer{t: r.t, status: w.Code, header: w.Header(), body: w.Body.String()}
}

// request is a call as a handler sees it.
func (r *relay) request(c call) *http.Request {
	r.t.Helper()
	if c.host == "" {
		c.host = "localhost"
	}
	q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(r.render(c))))
	if err != nil {
		r.t.Fatal(err)
	}
	q.RemoteAddr = "127.0.0.1:1"
	return q
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRelay(t, setup{})
		took := func(c call) time.Duration {
			c.agent = "ben"
			began := time.Now()
			a := r.serveDirectly(c)
			a.want(http.StatusOK, nil)
			if !strings.HasPrefix(a.body, `{"messages":[],`) {
				t.Errorf("got %s", a.body)
			}
			return time.Since(began)
		}
		for text, want := range map[string]time.Duration{
			``: 0, `NaN`: 0, `x`: 0, `null`: 0, `true`: 0, `-5`: 0, `0`: 0, `1`: time.Second, `0.25`: 250 * time.Millisecond, `"2"`: 2 * time.Second,
			`30`: 30 * time.Second, `60`: time.Minute, `61`: time.Minute, `1e9`: time.Minute, `1e999`: time.Minute,
		} {
			if got := took(call{target: "/messages?wait=" + url.QueryEscape(text)}); got != want {
				t.Errorf("?wait=%s waits %v, want %v", text, got, want)
			}
			if text == `` || text == `NaN` || text == `x` {
				continue // no JSON
			}
			if got := took(call{method: http.MethodPost, target: "/v1/pull", body: `{"waitSeconds":` + text + `}`}); got != want {
				t.Errorf("waitSeconds %s waits %v, want %v", text, got, want)
			}
		}
		if got := took(call{method: http.MethodPost, target: "/v1/pull", body: `{"wait":5}`}); got != 0 {
			t.Errorf("pull waits %v without waitSeconds", got)
		}
	})
}

func TestIDsAndOutcomes(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	list := func(n int) string {
		return `{"messageIds":["m"` + strings.Repeat(`,"m"`, n-1) + `]}`
	}
	ben.post("/v1/status", `{"messageIds":[]}`).wantBody(http.StatusOK, `{"messages":[]}`)
	ben.post("/v1/status", list(200)).want(http.StatusOK, nil)
	for _, body := range []string{
		list(201), `{}`, `{"messageIds":null}`, `{"messageIds":"m"}`, `{"messageIds":{}}`, `{"messageIds":["m",1]}`, `{"messageIds":["m",null]}`,
		`{"messageIds":[["m"]]}`, `{"messageids":["m"]}`,
		`{"messageIds":["m"],"agent":"ann"}`, `{"messageIds":["m"],"agent":1}`,
	} {
		ben.post("/v1/status", body).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	m := ben.pullOne(``)
	for _, c := range []string{
		`"leaseId":"LEASE","outcome":"completed"`,
		`"messageId":"","leaseId":"LEASE","outcome":"completed"`,
		`"messageId":1,"leaseId":"LEASE","outcome":"completed"`,
		`"messageId":null,"leaseId":"LEASE","outcome":"completed"`,
		`"messageId":"a b","leaseId":"LEASE","outcome":"completed"`,
		`"messageId":"m","outcome":"completed"`,
		`"messageId":"m","leaseId":"","outcome":"completed"`,
		`"messageId":"m","leaseId":null,"outcome":"completed"`,
		`"messageId":"m","leaseId":7,"outcome":"completed"`,
		`"messageId":"m","leaseId":"LEASE"`,
		`"messageId":"m","leaseId":"LEASE","outcome":null`,
		`"messageId":"m","leaseId":"LEASE","outcome":"done"`,
		`"messageId":"m","leaseId":"LEASE","outcome":"Completed"`,
		`"messageId":"m","leaseId":"LEASE","outcome":1`,
		`"messageId":"m","leaseId":"LEASE","outcome":"retry","error":1`,
		`"messageId":"m","leaseId":"LEASE","outcome":"completed","agent":"ann"`,
	} {
		body := "{" + strings.ReplaceAll(c, "LEASE", *m.LeaseID) + "}"
		ben.post("/v1/ack", body).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
		if !strings.Contains(c, "outcome") || !strings.Contains(c, `"completed"`) {
			continue
		}
		ben.post("/v1/lease/renew", body).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	ben.wantState("m", "leased", 0)
	// An error with completed says nothing, whatever it is.
	ben.post("/v1/ack", fmt.Sprintf(`{"messageId":"m","leaseId":%q,"outcome":"completed","error":null,"agent":"ben"}`, *m.LeaseID)).
		wantBody(http.StatusOK, `{"ok":true,"status":"done","attempts":0}`)
}

func TestFilters(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	ann.post("/messages", `{"to":"ben","id":"request","kind":"request"}`).want(http.StatusCreated, nil)
	zoe.post("/messages", `{"to":"ben","id":"reply","kind":"reply"}`).want(http.StatusCreated, nil)
	ann.send(ben, "plain", "done")
	ben.post("/messages/done/ack", ``).want(http.StatusCreated, nil)
	for body, want := range map[string]string{
		`{}`: "done plain reply request", ``: "done plain reply request",
		`{"kind":"request"}`: "request", `{"kind":"message"}`: "done plain", `{"kind":null}`: "done plain reply request",
		`{"status":"done"}`: "done", `{"status":"queued"}`: "plain reply request", `{"status":"failed"}`: "", `{"status":"leased"}`: "", `{"status":"expired"}`: "",
		`{"from":"zoe"}`: "reply", `{"from":"nobody"}`: "", `{"to":"ben"}`: "done plain reply request", `{"to":"ann"}`: "",
		`{"from":"ann","kind":"message","status":"queued"}`: "plain", `{"limit":2}`: "done plain",
	} {
		if got := strings.Join(idsOf(ben.list("/v1/messages/query", body)), " "); got != want {
			t.Errorf("query %s returns %q, want %q", body, got, want)
		}
	}
	for _, body := range []string{
		`{"kind":"ack"}`, `{"kind":1}`, `{"kind":"Request"}`, `{"status":"DONE"}`, `{"status":"not_found"}`, `{"status":[]}`,
		`{"from":1}`, `{"to":{}}`, `{"agent":"ann"}`,
	} {
		ben.post("/v1/messages/query", body).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	}
	if got := strings.Join(idsOf(ben.list("/v1/recent", `{"kind":"request"}`)), " "); got != "done plain reply request" {
		t.Errorf("recent returns %q; it has no filters", got)
	}
	for _, target := range []string{"/v1/recent", "/register", "/v1/pull"} {
		ben.post(target, `{"agent":"ann"}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
		ben.post(target, `{"agent":"ben"}`).want(http.StatusOK, nil)
	}
	ben.post("/messages/plain/ack", `{"agent":"ann"}`).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
}
