package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// pageOf is an answer to a poll.
func pageOf(cursor string, ids ...string) func(called) (*http.Response, error) {
	return always(200, pageText(cursor, ids...)+"}")
}

// resetTo is pageOf to a cursor that the broker does not know.
func resetTo(cursor string, ids ...string) func(called) (*http.Response, error) {
	return always(200, pageText(cursor, ids...)+`,"reset":true}`)
}

func pageText(cursor string, ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"from":"alpha","to":"beta","type":"message","body":{},"status":"queued"}`, id))
	}
	return fmt.Sprintf(`{"messages":[%s],"cursor":%q`, strings.Join(list, ","), cursor)
}

// kept notes what is saved.
type kept struct {
	loaded         Progress
	saved          []Progress
	failing, blind error
}

func (k *kept) Load(context.Context) (Progress, error) { return k.loaded, k.blind }

func (k *kept) Save(ctx context.Context, p Progress) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	k.saved = append(k.saved, p)
	return k.failing
}

// last is what was saved last, as text.
func (k *kept) last() string {
	if len(k.saved) == 0 {
		return "nothing"
	}
	p := k.saved[len(k.saved)-1]
	return p.Cursor + " " + strings.Join(p.Seen, ",")
}

func TestMessagesSavesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"GET /messages": inTurn(pageOf("c1", "a", "b"), pageOf("c2", "c"), usual, pageOf("c3", "d", "e", "f")),
		}}
		k := &kept{}
		before := map[string]string{"a": "nothing", "b": "nothing", "c": "c1 a,b", "d": "c2 a,b,c", "e": "c2 a,b,c", "f": "c2 a,b,c"}
		var read []string
		for m, err := range r.begin(t).Messages(t.Context(), MessagesOptions{Progress: k}) {
			if err != nil {
				t.Fatal(err)
			}
			if read = append(read, m.ID); k.last() != before[m.ID] {
				t.Errorf("when %s is read, %s is saved, want %s", m.ID, k.last(), before[m.ID])
			}
			if m.ID == "f" {
				break
			}
		}
		if !slices.Equal(read, []string{"a", "b", "c", "d", "e", "f"}) {
			t.Errorf("read %v", read)
		}
		// f, at which the loop was left, was perhaps not dealt with.
		if k.last() != "c2 a,b,c,d,e" {
			t.Errorf("in the end %s is saved", k.last())
		}
		var routes, queries []string
		for _, c := range r.calls {
			if routes = append(routes, c.route); c.route == "GET /messages" {
				queries = append(queries, c.query)
			}
		}
		if !slices.Equal(routes[:3], []string{"GET /", "POST /register", "GET /messages"}) || len(routes) != 6 {
			t.Errorf("the calls are %v", routes)
		}
		if !slices.Equal(queries, []string{"", "since=c1&wait=30", "since=c2&wait=30", "since=c2&wait=30"}) {
			t.Errorf("the polls are %q", queries)
		}
	})
}

func TestMessagesLeftAtOnceSavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": pageOf("c1", "a", "b")}}
		k := &kept{failing: errors.New("not called")}
		for range r.begin(t).Messages(t.Context(), MessagesOptions{Progress: k}) {
			break
		}
		if len(k.saved) != 0 {
			t.Errorf("saved %+v", k.saved)
		}
	})
}

func TestMessagesSkipsWhatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"GET /messages": inTurn(pageOf("c2", "b"), pageOf("c3", "b"), pageOf("c4", "c", "b", "a"), pageOf("c5", "end")),
		}}
		k := &kept{loaded: Progress{Cursor: "c1", Seen: []string{"a", "b"}}}
		if read := readUntil(t, r.begin(t), MessagesOptions{Progress: k}, "end"); !slices.Equal(read, []string{"c", "end"}) {
			t.Errorf("read %v", read)
		}
		if r.to("GET /messages")[0].query != "since=c1" || k.last() != "c4 a,b,c" || k.saved[0].Cursor != "c2" {
			t.Errorf("first asked for %s; saved %+v", r.to("GET /messages")[0].query, k.saved)
		}
	})
}

// readUntil reads up to a message and breaks there.
func readUntil(t *testing.T, c *Client, o MessagesOptions, last string) (ids []string) {
	t.Helper()
	for m, err := range c.Messages(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, m.ID); m.ID == last {
			break
		}
	}
	return ids
}

func TestMessagesReset(t *testing.T) {
	for name, polls := range map[string][]func(called) (*http.Response, error){
		"with messages": {resetTo("new:1", "a"), pageOf("new:2", "end")},
		// The broker gives back the cursor it does not know.
		"of an empty inbox": {resetTo("old:9"), pageOf("", []string{}...), pageOf("new:1", "a"), pageOf("new:2", "end")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waiting := func(c called) (*http.Response, error) { return holds(c, pageText("")+"}") }
				if len(polls) == 4 {
					polls[1] = waiting
				}
				r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": inTurn(polls...)}}
				k := &kept{loaded: Progress{Cursor: "old:9", Seen: []string{"x"}}}
				resets := 0
				o := MessagesOptions{Progress: k, OnReset: func() { resets++ }, OnAway: func(err error, _ time.Duration) { t.Error(err) }}
				if read := readUntil(t, r.begin(t), o, "end"); !slices.Equal(read, []string{"a", "end"}) || resets != 1 {
					t.Errorf("read %v, %d resets", read, resets)
				}
				if k.last() != "new:1 x,a" {
					t.Errorf("saved %+v", k.saved)
				}
				for _, c := range r.to("GET /messages")[1:] {
					if strings.Contains(c.query, "old") {
						t.Errorf("after the reset it asks for %s", c.query)
					}
				}
			})
		})
	}
}

func TestMessagesWhileTheBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{}
		c := r.begin(t)
		// Reachable for a page, gone while the next poll waits, then away, then a
		// broker that cannot write, then back; away once more in the end.
		r.routes["GET /messages"] = inTurn(pageOf("c1", "a"), away, pageOf("c2", "b"), away, pageOf("c3", "end"))
		r.routes["GET /"] = inTurn(usual, away, away, away, away, usual, usual)
		r.routes["POST /register"] = inTurn(usual, always(507, `{"error":{"code":"storage_full","message":"full"}}`))
		var pauses []time.Duration
		var reasons []error
		back := 0
		o := MessagesOptions{
			OnAway: func(err error, pause time.Duration) { pauses, reasons = append(pauses, pause), append(reasons, err) },
			OnBack: func() { back++ },
		}
		if read := readUntil(t, c, o, "end"); !slices.Equal(read, []string{"a", "b", "end"}) || back != 2 {
			t.Errorf("read %v; back %d times", read, back)
		}
		want := []time.Duration{2, 4, 8, 16, 30, 30, 2} // the last after a success
		if len(pauses) != len(want) {
			t.Fatalf("pauses %v", pauses)
		}
		greeted := r.times("GET /")
		for i, pause := range pauses {
			if !about(pause, want[i]*time.Second) {
				t.Errorf("pause %d is %v, want about %d s", i, pause, want[i])
			}
			if i > 0 && i < 6 && greeted[i+1]-greeted[i] != pause {
				t.Errorf("greeted at %v, announced %v", greeted, pauses)
			}
		}
		if !errors.Is(reasons[0], ErrUnreachable) || !errors.Is(reasons[5], agentrelay.ErrStorageFull) {
			t.Errorf("the reasons are %v", reasons)
		}
		if registered := len(r.to("POST /register")); registered != 4 {
			t.Errorf("registered %d times", registered)
		}
	})
}

// A broker that shuts down ends the waits.
func TestMessagesWhenTheBrokerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := always(200, `{"messages":[],"cursor":null}`)
		r := &routed{routes: map[string]func(called) (*http.Response, error){
			"GET /messages": inTurn(empty, empty, pageOf("c1", "end")),
		}}
		var reasons []error
		back := 0
		o := MessagesOptions{OnAway: func(err error, _ time.Duration) { reasons = append(reasons, err) }, OnBack: func() { back++ }}
		readUntil(t, r.begin(t), o, "end")
		if len(reasons) != 1 || !strings.Contains(reasons[0].Error(), "going away") || back != 1 {
			t.Errorf("away because of %v, back %d times", reasons, back)
		}
		if at := r.times("GET /messages"); at[1] != 0 || !about(at[2]-at[1], 2*time.Second) {
			t.Errorf("asked at %v", at)
		}
	})
}

func TestMessagesEndsWithTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /": away}}
		c := r.begin(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var ends []error
		for _, err := range c.Messages(ctx, MessagesOptions{}) {
			ends = append(ends, err)
		}
		// It tried after 2 and 4 s more; the pause of 8 s went beyond the end.
		if len(ends) != 1 || !errors.Is(ends[0], context.DeadlineExceeded) || time.Since(r.began) != 10*time.Second || len(r.calls) != 3 {
			t.Errorf("%v after %v and %d tries", ends, time.Since(r.began), len(r.calls))
		}
	})
}

func TestMessagesEndsWithinAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": pageOf("c1", "a", "b", "c")}}
		c, k := r.begin(t), &kept{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var read []string
		var end error
		for m, err := range c.Messages(ctx, MessagesOptions{Progress: k}) {
			if end = err; err != nil {
				break
			}
			read = append(read, m.ID)
			cancel()
		}
		if !slices.Equal(read, []string{"a"}) || !errors.Is(end, context.Canceled) || k.last() != " a" {
			t.Errorf("read %v, %v; saved %q", read, end, k.last())
		}
	})
}

func TestMessagesEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{}
		c := r.begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(45*time.Second, cancel)
		var end error
		for _, err := range c.Messages(ctx, MessagesOptions{}) {
			end = err
		}
		if !errors.Is(end, context.Canceled) || time.Since(r.began) != 45*time.Second {
			t.Errorf("%v after %v", end, time.Since(r.began))
		}
	})
}

func TestMessagesEndsWithAnErrorThatStays(t *testing.T) {
	wrong := always(401, `{"error":{"code":"unauthenticated","reason":"bad_signature","message":"x"}}`)
	for route, answer := range map[string]func(called) (*http.Response, error){
		"GET /":          always(200, "<html>"),
		"POST /register": wrong,
		"GET /messages":  wrong,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{routes: map[string]func(called) (*http.Response, error){route: answer}}
			var ends []error
			for m, err := range r.begin(t).Messages(t.Context(), MessagesOptions{}) {
				if ends = append(ends, err); m.ID != "" {
					t.Errorf("%s comes with an error", m.ID)
				}
			}
			if len(ends) != 1 || (!errors.Is(ends[0], ErrNotRelay) && !errors.Is(ends[0], agentrelay.ErrUnauthenticated)) || len(r.to(route)) != 1 {
				t.Errorf("%s: %v after %d tries", route, ends, len(r.to(route)))
			}
		})
	}
}

func TestMessagesWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": inTurn(pageOf("c1", "a"), pageOf("c2", "b"))}}
		c := r.begin(t)
		full := errors.New("no room")
		for name, k := range map[string]*kept{"Load": {blind: full}, "Save": {failing: full}} {
			var ends []error
			for _, err := range c.Messages(t.Context(), MessagesOptions{Progress: k}) {
				if err != nil {
					ends = append(ends, err)
				}
			}
			if len(ends) != 1 || !errors.Is(ends[0], full) {
				t.Errorf("%s: the loop ends with %v", name, ends)
			}
		}
	})
}

func TestMessagesWaits(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, -time.Hour: 30 * time.Second, time.Hour: time.Minute, 7 * time.Second: 7 * time.Second, 300 * time.Millisecond: time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{}
			c := r.begin(t)
			r.routes["GET /messages"] = inTurn(usual, usual, usual, pageOf("c1", "end"))
			o := MessagesOptions{Wait: given, Limit: 7, MaxBytes: 1000, OnAway: func(err error, _ time.Duration) { t.Error(err) }}
			readUntil(t, c, o, "end")
			polls := r.to("GET /messages")
			if at := polls[3].at; at != 2*want {
				t.Errorf("Wait %v: two polls took %v, want %v each", given, at, want)
			}
			if polls[3].wait() != want || !strings.Contains(polls[3].query, "limit=7&max_bytes=1000") {
				t.Errorf("Wait %v: asks for %s", given, polls[3].query)
			}
		})
	}
}

// The loop may be run again; without a store of its own it begins anew.
func TestMessagesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": pageOf("c1", "a")}}
		loop := r.begin(t).Messages(t.Context(), MessagesOptions{})
		for range 2 {
			read := 0
			for _, err := range loop {
				if read++; err != nil {
					t.Fatal(err)
				}
				break
			}
			if read != 1 {
				t.Error("nothing was read")
			}
		}
	})
}

// Since is where to begin as long as nothing is kept.
func TestMessagesSince(t *testing.T) {
	for name, c := range map[string]struct {
		o    MessagesOptions
		want string
	}{
		"nothing":        {MessagesOptions{}, "wait=0"},
		"since":          {MessagesOptions{Since: "m/1"}, "since=m%2F1"},
		"since and kept": {MessagesOptions{Since: "m/1", Progress: &kept{loaded: Progress{Cursor: "c7"}}}, "since=c7"},
		"kept nothing":   {MessagesOptions{Since: "m/1", Progress: &kept{}}, "since=m%2F1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &routed{routes: map[string]func(called) (*http.Response, error){"GET /messages": pageOf("c8", "end")}}
			readUntil(t, r.begin(t), c.o, "end")
			query := r.to("GET /messages")[0].query
			if strings.Contains(query, "since=") != strings.Contains(c.want, "since=") || strings.Contains(c.want, "since=") && !strings.Contains(query, c.want) {
				t.Errorf("%s: asks for %s, want %s", name, query, c.want)
			}
		})
	}
}
