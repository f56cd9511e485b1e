package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestPollNeverConsumes(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "m1", "m2", "m3")
	first := ben.get("/messages")
	r.store.wait(t, "Delivered", 1)
	for range 3 {
		ben.get("/messages").wantBody(http.StatusOK, first.body)
		ben.get("/messages?since=").wantBody(http.StatusOK, first.body)
	}
	// The cursor advances only over what was returned.
	p := ben.poll("?limit=1")
	next := ben.poll("?limit=1&since=" + *p.Cursor)
	if fmt.Sprint(idsOf(p.Messages), idsOf(next.Messages)) != "[m1] [m2]" {
		t.Errorf("paged %v, then %v", idsOf(p.Messages), idsOf(next.Messages))
	}
	if again := ben.poll("?limit=1&since=" + *p.Cursor); *again.Cursor != *next.Cursor {
		t.Errorf("the same page has cursors %s and %s", *again.Cursor, *next.Cursor)
	}
}

func TestCursorOfAnEmptyPage(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ben.get("/messages").wantBody(http.StatusOK, `{"messages":[],"cursor":null}`)
	ben.get("/messages?since=").wantBody(http.StatusOK, `{"messages":[],"cursor":null}`)
	ben.get("/messages?since=what%22ever").wantBody(http.StatusOK, `{"messages":[],"cursor":"what\"ever","reset":true}`)
	ann.send(ben, "m")
	cursor := *ben.poll("").Cursor
	for _, since := range []string{cursor, url.QueryEscape(cursor), "m"} {
		echo, _ := url.PathUnescape(since)
		ben.get("/messages?since="+since).wantBody(http.StatusOK, `{"messages":[],"cursor":"`+echo+`"}`)
	}
}

// A cursor that is not of this inbox returns all that is there and says so.
func TestCursorsThatMeanNothingHere(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben, zoe := r.agent("ann"), r.agent("ben"), r.agent("zoe")
	ann.send(ben, "m1", "m2")
	ann.send(zoe, "z1", "z2")
	own, ok := agentrelay.ParseCursor(*ben.poll("?limit=1").Cursor)
	if !ok {
		t.Fatal("the cursor has not the form of one")
	}
	foreign := *zoe.poll("?limit=1").Cursor
	other := agentrelay.Cursor{Tag: agentrelay.CursorTag("another epoch", "ben"), Position: 1}.String()
	beyond := agentrelay.Cursor{Tag: own.Tag, Position: 3}.String()
	for name, since := range map[string]string{
		"of another agent": foreign, "of another database": other, "beyond the end": beyond,
		"garbage": "garbage", "a message nobody knows": "none", "a message of another inbox": "z1",
		"a damaged one": own.String() + "x", "a sign": fmt.Sprintf("cursor:%s:+1", own.Tag), "zeros": fmt.Sprintf("cursor:%s:01", own.Tag),
		"no position": fmt.Sprintf("cursor:%s:", own.Tag), "no tag": "cursor::1", "too large": fmt.Sprintf("cursor:%s:99999999999999999999", own.Tag),
		"a number": "1", "null": "null", "a space": "%20", "a percent sign": "%", "binary": "%ff%00",
	} {
		p := ben.poll("?since=" + since)
		if fmt.Sprint(idsOf(p.Messages)) != "[m1 m2]" || p.Reset == nil || !*p.Reset {
			t.Errorf("since %s: got %v, reset %v; want all and reset", name, idsOf(p.Messages), p.Reset)
		}
		if after := ben.poll("?since=" + *p.Cursor); len(after.Messages) != 0 || after.Reset != nil {
			t.Errorf("since %s: the new cursor finds %v, reset %v", name, idsOf(after.Messages), after.Reset)
		}
	}
	for _, since := range []string{own.String(), "m1", agentrelay.Cursor{Tag: own.Tag, Position: 1}.String()} {
		if p := ben.poll("?since=" + since); fmt.Sprint(idsOf(p.Messages)) != "[m2]" || p.Reset != nil {
			t.Errorf("since=%s: got %v, reset %v", since, idsOf(p.Messages), p.Reset)
		}
	}
}

// A message's id as a cursor stands for its first position, even when it was
// queued again.
func TestIDsAsCursors(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.send(ben, "a/b+c", "m2", "m3")
	for _, since := range []string{"a/b+c", "a%2Fb%2Bc", "a%2fb+c"} {
		if p := ben.poll("?since=" + since); fmt.Sprint(idsOf(p.Messages)) != "[m2 m3]" || p.Reset != nil {
			t.Errorf("since=%s: got %v", since, idsOf(p.Messages))
		}
	}
	m := ben.pull(`{"limit":1}`)[0]
	ben.settle(m, "retry").want(http.StatusOK, nil)
	if p := ben.poll("?since=a/b+c"); fmt.Sprint(idsOf(p.Messages)) != "[m2 m3 a/b+c]" {
		t.Errorf("after a retry: got %v", idsOf(p.Messages))
	}
	// Done or not, it marks its place.
	ben.post("/messages/m2/ack", ``).want(http.StatusCreated, nil)
	if p := ben.poll("?since=m2"); fmt.Sprint(idsOf(p.Messages)) != "[m3 a/b+c]" || p.Reset != nil {
		t.Errorf("since a message that is done: got %v", idsOf(p.Messages))
	}
	// One whose time is over does not.
	r.clock.Advance(7 * 24 * time.Hour)
	ann.send(ben, "m4")
	if p := ben.poll("?since=m2"); fmt.Sprint(idsOf(p.Messages)) != "[m4]" || p.Reset == nil {
		t.Errorf("since a message whose time is over: got %v, reset %v", idsOf(p.Messages), p.Reset)
	}
}

// pages reads an inbox to its end as old clients do: they keep a cursor, and
// change it only when a poll brought messages.
func (a agent) pages(query string) (all []string, pages int) {
	a.t.Helper()
	cursor := ""
	for {
		p := a.poll("?since=" + cursor + query)
		if p.Reset != nil {
			a.t.Fatalf("the cursor %s was not accepted", cursor)
		}
		if len(p.Messages) == 0 {
			return all, pages
		}
		all = append(all, idsOf(p.Messages)...)
		cursor = *p.Cursor
		pages++
	}
}

// Time orders nothing: all of these have the same.
func TestFiveHundredMessagesInOneMillisecond(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("a%d", 49-i)) // not in the order of ids either
	}
	ann.send(ben, want...)
	r.fill("ben", 450)
	all, pages := ben.pages("&limit=50")
	if pages != 10 || !slices.Equal(all[:50], want) {
		t.Errorf("read %d pages, the first is %v", pages, all[:50])
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 500 {
		t.Errorf("read %d messages, %d different ones; want 500", len(all), len(slices.Compact(all)))
	}
	for _, m := range ben.poll("?limit=200").Messages {
		if m.TS != "2026-03-14T09:26:53.589Z" {
			t.Fatalf("the clock stood still, but %s has ts %s", m.ID, m.TS)
		}
	}
}

func TestFullInboxIsPagedToItsEnd(t *testing.T) {
	r := newRelay(t, setup{})
	ben := r.agent("ben")
	r.fill("ben", 1300)
	all, pages := ben.pages("&limit=200")
	if pages != 7 {
		t.Errorf("read %d pages, want 7", pages)
	}
	slices.Sort(all)
	if len(all) != 1300 || len(slices.Compact(all)) != 1300 {
		t.Errorf("read %d messages, want 1300 different ones", len(all))
	}
}
