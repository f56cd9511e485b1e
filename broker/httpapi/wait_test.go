package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// waiting is a call whose answer is held.
type waiting struct {
	*conn
	method string
}

// begin starts a call that waits, and returns when the broker found nothing
// yet and holds the answer. listing is the store's call that looks.
func (r *relay) begin(q call, listing string) waiting {
	r.t.Helper()
	before := r.store.count(listing)
	w := waiting{r.dial(), q.method}
	w.send(r.render(q))
	r.store.wait(r.t, listing, before+1)
	return w
}

func (w waiting) answer() answer {
	w.t.Helper()
	return w.receive(w.method)
}

func longPoll(agent string) call { return call{agent: agent, target: "/messages?wait=30"} }

func longPull(agent string) call {
	return call{agent: agent, method: http.MethodPost, target: "/v1/pull", body: `{"waitSeconds":30,"leaseSeconds":60}`}
}

func TestWaitingCallsGetWhatArrives(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	first, second, other := r.begin(longPoll("ben"), "Poll"), r.begin(longPoll("ben"), "Poll"), r.begin(longPoll("zoe"), "Poll")
	ann.send(ben, "m1")
	for _, w := range []waiting{first, second} {
		var p page
		if w.answer().want(http.StatusOK, &p); len(p.Messages) != 1 || p.Messages[0].ID != "m1" || p.Cursor == nil {
			t.Errorf("a waiting poll got %+v", p)
		}
	}
	ben.post("/messages/m1/ack", ``).want(http.StatusCreated, nil)

	// Of two pulls one gets it.
	one, two := r.begin(longPull("ben"), "Lease"), r.begin(longPull("ben"), "Lease")
	looked := r.store.count("Lease")
	ann.send(ben, "m2")
	r.store.wait(t, "Lease", looked+2)
	ann.send(ben, "m3")
	var got strings.Builder
	for _, w := range []waiting{one, two} {
		a := w.answer()
		a.want(http.StatusOK, nil)
		got.WriteString(a.body)
	}
	if n := strings.Count(got.String(), `"id":"m2"`) + strings.Count(got.String(), `"id":"m3"`); n != 2 {
		t.Errorf("two pulls got %s", got.String())
	}
	// What came for others woke nobody.
	ann.send(zoe, "m4")
	if a := other.answer(); a.status != http.StatusOK || !strings.Contains(a.body, `"id":"m4"`) {
		t.Errorf("the other poll got %d %s", a.status, a.body)
	}
}

// A receipt is something to wait for, too.
func TestWaitingPollGetsAReceipt(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	w := r.begin(longPoll("ann"), "Poll")
	ben.post("/messages/m/ack", ``).want(http.StatusCreated, nil)
	if a := w.answer(); a.status != http.StatusOK || !strings.Contains(a.body, `"replyTo":"m"`) {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// A poll waits for what is after its cursor, and is answered at once if there
// is something.
func TestPollWaitsAfterItsCursor(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1")
	p := ben.poll("?wait=30")
	w := r.begin(call{agent: "ben", target: "/messages?wait=30&since=" + *p.Cursor}, "Poll")
	ann.send(ben, "m2")
	var next page
	if w.answer().want(http.StatusOK, &next); len(next.Messages) != 1 || next.Messages[0].ID != "m2" {
		t.Errorf("got %v, want m2", idsOf(next.Messages))
	}
}

// Those who wait get a message again when it is queued again.
func TestWaitingPollGetsWhatIsQueuedAgain(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m")
	cursor := *ben.poll("").Cursor
	after := call{agent: "ben", target: "/messages?wait=30&since=" + cursor}
	m := ben.pullOne(`{"leaseSeconds":60}`)
	w := r.begin(after, "Poll")
	ben.settle(m, "retry").want(http.StatusOK, nil)
	if a := w.answer(); a.messages() != 1 {
		t.Errorf("after a retry a waiting poll got %s", a.body)
	}
	// A lease that runs out does it by itself: nobody else asks. The timer is
	// the machine's, the lease's end the test's.
	ben.pullOne(`{"leaseSeconds":1}`)
	w = r.begin(after, "Poll")
	r.clock.Advance(time.Second)
	if a := w.answer(); a.messages() != 1 || !strings.Contains(a.body, `"attempts":2`) {
		t.Errorf("after a lease ran out a waiting poll got %s", a.body)
	}
}

func TestTimeIsUp(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	began := time.Now()
	ben.get("/messages?wait=0.05&since=cursor:x:1").wantBody(http.StatusOK, `{"messages":[],"cursor":"cursor:x:1","reset":true}`)
	ben.post("/v1/pull", `{"waitSeconds":0.05}`).wantBody(http.StatusOK, `{"messages":[],"count":0}`)
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("two waits of 50 ms took %v", took)
	}
}

// A broker that drains answers those who wait, now and later, with what is
// there.
func TestDrain(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	poll, pull := r.begin(longPoll("ben"), "Poll"), r.begin(longPull("ben"), "Lease")
	r.broker.Drain()
	r.broker.Drain()
	poll.answer().wantBody(http.StatusOK, `{"messages":[],"cursor":null}`)
	pull.answer().wantBody(http.StatusOK, `{"messages":[],"count":0}`)
	r.do(longPoll("ben")).wantBody(http.StatusOK, `{"messages":[],"cursor":null}`)
	r.do(longPull("ben")).wantBody(http.StatusOK, `{"messages":[],"count":0}`)
	ann.send(ben, "m")
	if a := r.do(longPoll("ben")); a.messages() != 1 {
		t.Errorf("a draining broker answers %s", a.body)
	}
}

// A client that goes away ends its wait, and takes nothing with it.
func TestClientGoneWhileItWaits(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	for _, abrupt := range []bool{false, true} {
		for _, w := range []waiting{r.begin(longPoll("ben"), "Poll"), r.begin(longPull("ben"), "Lease")} {
			if abrupt {
				_ = w.SetLinger(0)
			}
			_ = w.Close()
			r.waitClosed(w.conn)
		}
	}
	ann.send(ben, "m")
	if s := ann.state("m"); s.Status != "queued" || s.Attempts != 0 || s.DeliveredAt != "" {
		t.Errorf("the message went to somebody who was gone: %+v", s)
	}
}

// Leases taken for a client that has gone meanwhile are given back, uncounted.
func TestLeasesOfAClientThatIsGone(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	w := r.begin(longPull("ben"), "Lease")
	noticed := make(chan struct{})
	r.store.set(func(s *spy) {
		s.afterLease = func() {
			_ = w.Close()
			<-noticed
		}
	})
	r.mu.Lock()
	request := r.last
	r.mu.Unlock()
	go func() {
		<-request.Done()
		close(noticed)
	}()
	ann.send(ben, "m")
	r.waitClosed(w.conn)
	r.store.set(func(s *spy) { s.afterLease = nil })
	if s := ann.state("m"); s.Status != "queued" || s.Attempts != 0 || s.DeliveredAt != "" {
		t.Errorf("the message stays with somebody who was gone: %+v", s)
	}
	if m := ben.pullOne(``); m.Attempts != 0 {
		t.Errorf("pulled %+v", m)
	}
}

// So are those whose answer breaks off on its way.
func TestLeasesOfAnAnswerThatBreaksOff(t *testing.T) {
	r := newRelay(t, setup{writeBuffer: 4096})
	ann, ben := r.agent("ann"), r.agent("ben")
	ids := []string{"m1", "m2", "m3", "m4"}
	for _, id := range ids {
		if err := r.enqueue("ben", id, []byte(`"`+strings.Repeat("x", 256<<10)+`"`)); err != nil {
			t.Fatal(err)
		}
	}
	c := r.dial()
	if err := c.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c.send(r.render(longPull("ben")))
	if _, err := c.reader.ReadByte(); err != nil { // the answer is on its way
		t.Fatal(err)
	}
	_ = c.SetLinger(0)
	_ = c.Close()
	r.waitClosed(c)
	if n := r.store.count("Release"); n != 1 {
		t.Errorf("leases were given back %d times, want once", n)
	}
	for _, id := range ids {
		if s := ann.state(id); s.Status != "queued" || s.Attempts != 0 || s.DeliveredAt != "" {
			t.Errorf("the message stays with somebody who was gone: %+v", s)
		}
	}
	if got := ben.post("/v1/pull", ``).messages(); got != 4 {
		t.Errorf("pulled %d messages, want 4", got)
	}
}

// So many calls of one agent may wait, and no more; others are not affected.
func TestWaitingCallsAreBounded(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	var held []waiting
	for range 63 {
		held = append(held, r.begin(longPoll("ben"), "Poll"))
	}
	pull := r.begin(longPull("ben"), "Lease")
	r.scrapeUntil("agent_relay_waiting_polls", 64)
	ben.get("/messages?wait=30").wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
	ben.post("/v1/pull", `{"waitSeconds":30}`).wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
	ben.get("/messages?wait=0").want(http.StatusOK, nil)
	other := r.begin(longPoll("zoe"), "Poll")
	ann.send(zoe, "to-zoe")
	other.answer().want(http.StatusOK, nil)
	ann.send(ben, "to-ben")
	pull.answer().want(http.StatusOK, nil)
	ben.get("/messages?wait=0.01").want(http.StatusOK, nil)
	for _, w := range held {
		_ = w.Close()
	}
}
