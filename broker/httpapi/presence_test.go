package httpapi_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestRegister(t *testing.T) {
	r := newRelay(t, setup{})
	const want = `{"ok":true,"agent":"ann","ts":1773480413}`
	for _, body := range []string{``, `{}`, `{"agent":"ann"}`, `{"agent":null}`, ` `, `{"else":1}`} {
		r.do(call{agent: "ann", method: http.MethodPost, target: "/register", body: body}).wantBody(http.StatusOK, want)
	}
	r.do(call{agent: "ann", method: http.MethodPost, target: "/register", body: `{"agent":"Ann"}`}).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	r.clock.Advance(2 * time.Minute)
	r.do(call{agent: "ann", method: http.MethodPost, target: "/register"}).wantBody(http.StatusOK, `{"ok":true,"agent":"ann","ts":1773480533}`)
}

func TestPeers(t *testing.T) {
	r := newRelay(t, setup{})
	ghost := agent{r, "ghost"} // never registers
	ghost.get("/peers").wantBody(http.StatusOK, `{"peers":[]}`)
	r.agent("zoe")
	r.agent("Zoe")
	r.agent("ann")
	ghost.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"Zoe","online":true,"lastSeen":1773480413},`+
		`{"agent":"ann","online":true,"lastSeen":1773480413},{"agent":"zoe","online":true,"lastSeen":1773480413}]}`)
	r.clock.Advance(90 * time.Second)
	agent{r, "ann"}.get("/messages").want(http.StatusOK, nil) // any request will do
	agent{r, "zoe"}.post("/nowhere", ``).want(http.StatusNotFound, nil)
	ghost.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"Zoe","online":true,"lastSeen":1773480413},`+
		`{"agent":"ann","online":true,"lastSeen":1773480503},{"agent":"zoe","online":true,"lastSeen":1773480503}]}`)
	r.clock.Advance(time.Second)
	// A request that is not let in is none of hers.
	r.do(call{agent: "Zoe", target: "/peers", signature: "00"}).want(http.StatusUnauthorized, nil)
	r.do(call{agent: "Zoe", target: "/peers", timestamp: "1"}).want(http.StatusUnauthorized, nil)
	r.do(call{agent: "Zoe", target: "/", unsigned: true}).want(http.StatusOK, nil)
	ghost.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"Zoe","online":false,"lastSeen":1773480413},`+
		`{"agent":"ann","online":true,"lastSeen":1773480503},{"agent":"zoe","online":true,"lastSeen":1773480503}]}`)
}

func TestLastSeenIsPersistedOnceAMinute(t *testing.T) {
	s := setup{dir: t.TempDir()}
	r := newRelay(t, s)
	ann := r.agent("ann")
	ghost := agent{r, "ghost"}
	for _, step := range []time.Duration{30 * time.Second, 29 * time.Second, time.Second} {
		r.clock.Advance(step)
		ann.get("/messages").want(http.StatusOK, nil)
		ghost.get("/messages").want(http.StatusOK, nil)
	}
	minute := r.clock.Now()
	r.store.wait(t, "Touch", 1)
	r.clock.Advance(59 * time.Second)
	ann.get("/messages").want(http.StatusOK, nil)
	last := r.clock.Now()
	r.stop() // writes what is left
	times := r.store.touches("ann")
	if len(times) != 2 || !times[0].Equal(minute) || !times[1].Equal(last) {
		t.Errorf("lastSeen was persisted as %v, want %v and, at the end, %v", times, minute, last)
	}
	if n := len(r.store.touches("ghost")); n != 0 {
		t.Errorf("an agent that never registered was persisted %d times", n)
	}

	s.clock = r.clock
	s.clock.Advance(time.Hour)
	agent{newRelay(t, s), "ghost"}.get("/peers").wantBody(http.StatusOK, `{"peers":[{"agent":"ann","online":false,"lastSeen":1773480532}]}`)
}

func TestHealth(t *testing.T) {
	r := newRelay(t, setup{})
	ask := call{target: "/healthz", unsigned: true}
	r.do(ask).wantBody(http.StatusOK, `{"ok":true,"version":"1.2.3-test","storage":"sqlite"}`)
	// Many who ask share one answer, for a second.
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				r.do(ask).want(http.StatusOK, nil)
			}
		})
	}
	all.Wait()
	if n, most := r.store.count("Probe"), 1+int(time.Since(began)/time.Second)+1; n > most {
		t.Errorf("the store was probed %d times in %v", n, time.Since(began))
	}
}

func TestHealthOfAStoreThatCannotWrite(t *testing.T) {
	const want = `{"ok":false,"version":"1.2.3-test","storage":"sqlite"}`
	ask := call{target: "/healthz", unsigned: true}
	r := newRelay(t, setup{})
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	a := r.do(ask)
	a.wantBody(http.StatusServiceUnavailable, want)
	a.wantHeaders()
	r.do(call{agent: "ann", method: http.MethodPost, target: "/register"}).wantError(http.StatusServiceUnavailable, agentrelay.CodeBusy)

	r = newRelay(t, setup{})
	r.store.set(func(s *spy) { s.failProbe = errors.New("no room") })
	r.do(ask).wantBody(http.StatusServiceUnavailable, want)
}
