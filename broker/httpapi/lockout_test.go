package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store/storetest"
)

// bad is a request with a bad signature.
func bad(agent string) call { return call{agent: agent, target: "/peers", signature: "00"} }

func good(agent string) call { return call{agent: agent, target: "/peers"} }

func (r *relay) wantBad(agent string, times int) {
	r.t.Helper()
	for range times {
		r.do(bad(agent)).wantReason(agentrelay.ReasonBadSignature)
	}
}

func (r *relay) wantGood(agent string) {
	r.t.Helper()
	r.do(good(agent)).want(http.StatusOK, nil)
}

func (a answer) wantLocked(seconds string) {
	a.t.Helper()
	a.wantError(http.StatusForbidden, agentrelay.CodeLocked)
	if got := a.header.Get("Retry-After"); got != seconds {
		a.t.Fatalf("Retry-After is %q, want %s", got, seconds)
	}
}

func TestLockout(t *testing.T) {
	r := newRelay(t, setup{})
	r.wantBad("ann", 5)
	r.do(bad("ann")).wantLocked("300")
	r.do(good("ann")).wantLocked("300")
	r.wantGood("ben")
	r.wantGood("Ann")

	// The lock goes by time that passes, not by the wall.
	r.clock.Jump(time.Hour)
	r.do(good("ann")).wantLocked("300")
	r.clock.Jump(-2 * time.Hour)
	r.do(good("ann")).wantLocked("300")
	r.clock.Advance(299*time.Second + time.Millisecond)
	r.do(good("ann")).wantLocked("1")
	r.clock.Advance(999 * time.Millisecond)
	r.wantGood("ann")
	r.wantBad("ann", 4) // counted from nothing
	r.wantGood("ann")
}

func TestLockEndsWithoutAGoodSignature(t *testing.T) {
	r := newRelay(t, setup{})
	r.wantBad("ann", 5)
	r.clock.Advance(5 * time.Minute)
	r.wantBad("ann", 5)
	r.do(good("ann")).wantLocked("300")
}

func TestGoodSignatureResetsTheCount(t *testing.T) {
	r := newRelay(t, setup{})
	r.wantBad("ann", 4)
	r.wantGood("ann")
	r.wantBad("ann", 4)
	// Good is the signature, whatever else is wrong with the request.
	r.do(call{agent: "ann", target: "/peers", timestamp: "1"}).wantReason(agentrelay.ReasonTimestampSkew)
	r.wantBad("ann", 4)
	r.wantGood("ann")
}

func TestOnlyFailuresWithinDurationLock(t *testing.T) {
	r := newRelay(t, setup{})
	r.wantBad("ann", 1)
	r.clock.Advance(time.Minute)
	r.wantBad("ann", 3)
	r.clock.Advance(4*time.Minute + time.Millisecond)
	r.wantBad("ann", 1) // the first is too long ago
	r.wantGood("ann")

	r.wantBad("ben", 1)
	r.clock.Advance(5 * time.Minute)
	r.wantBad("ben", 4)
	r.do(good("ben")).wantLocked("300")
}

func TestOnlyBadSignaturesCount(t *testing.T) {
	r := newRelay(t, setup{})
	for range 6 {
		r.do(call{agent: "ann", target: "/peers", timestamp: "never"}).wantReason(agentrelay.ReasonBadTimestamp)
		r.do(call{agent: "ann", target: "/peers", timestamp: "1"}).wantReason(agentrelay.ReasonTimestampSkew)
		r.do(call{target: "/peers", unsigned: true, header: []string{"X-Relay-Agent: ann"}}).wantReason(agentrelay.ReasonMissingHeaders)
		r.do(call{agent: "ann", target: "/nowhere"}).want(http.StatusNotFound, nil)
		r.do(call{agent: "ann", target: "/peers", signature: "00", host: "example"}).want(http.StatusMisdirectedRequest, nil)
	}
	r.wantGood("ann")
}

// Whoever guesses at an agent's secret elsewhere does not lock the agent out.
func TestLockIsPerAddress(t *testing.T) {
	r := newRelay(t, setup{proxies: []string{"127.0.0.1/32"}})
	from := func(c call, address string) call {
		c.header = []string{"X-Forwarded-For: " + address}
		return c
	}
	for range 5 {
		r.do(from(bad("ann"), "192.0.2.1")).wantReason(agentrelay.ReasonBadSignature)
	}
	r.do(from(good("ann"), "192.0.2.1")).wantLocked("300")
	r.do(from(good("ann"), "192.0.2.2")).want(http.StatusOK, nil)
	r.do(from(good("ben"), "192.0.2.1")).want(http.StatusOK, nil)
	r.wantGood("ann")
}

func TestAgentRateLimit(t *testing.T) {
	r := newRelay(t, setup{perAgent: 5})
	for range 5 {
		r.wantGood("ann")
	}
	for range 2 {
		a := r.do(good("ann"))
		a.wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
		if got := a.header.Get("Retry-After"); got != "60" {
			t.Errorf("Retry-After is %q, want 60", got)
		}
	}
	r.wantGood("ben")
	r.do(call{agent: "ann", target: "/"}).want(http.StatusOK, nil)
	r.wantBad("ann", 1) // a bad signature is not ann's request
}

func TestAddressRateLimit(t *testing.T) {
	r := newRelay(t, setup{perAddress: 7, proxies: []string{"127.0.0.1/32"}})
	r.wantBad("ann", 5)
	r.do(good("ann")).wantLocked("300")
	r.do(call{target: "/peers", unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
	// That were seven. From now on every refusal says so, whatever it is for.
	for _, c := range []call{bad("ben"), good("ann"), {target: "/peers", unsigned: true}, {agent: "ben", target: "/peers", timestamp: "1"}} {
		a := r.do(c)
		a.wantError(http.StatusTooManyRequests, agentrelay.CodeRateLimited)
		if got := a.header.Get("Retry-After"); got != "60" {
			t.Errorf("Retry-After is %q, want 60", got)
		}
	}
	for range 10 {
		r.wantGood("ben")
	}
	// Others' addresses have a count of their own, whole networks of IPv6 one.
	elsewhere := call{target: "/peers", unsigned: true, header: []string{"X-Forwarded-For: 192.0.2.1"}}
	r.do(elsewhere).wantReason(agentrelay.ReasonMissingHeaders)
	for i := range 8 {
		elsewhere.header = []string{fmt.Sprintf("X-Forwarded-For: 2001:db8::%d", i+1)}
		want := http.StatusUnauthorized
		if i == 7 {
			want = http.StatusTooManyRequests
		}
		r.do(elsewhere).want(want, nil)
	}
}

// logLines keeps what was logged, a JSON object a line.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logLines) handler(level slog.Level) slog.Handler {
	return slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level})
}

// last returns the value of the last line that has a message.
func (l *logLines) last(message, name string) (value string) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(l.String())))
	for {
		var line map[string]any
		if decoder.Decode(&line) != nil {
			return value
		}
		if line["msg"] == message {
			audit, _ := line["audit"].(map[string]any)
			value = fmt.Sprint(audit[name])
		}
	}
}

// Who asks is the peer, unless a trusted proxy says for whom it asks.
func TestClientAddress(t *testing.T) {
	type logged struct {
		*relay
		log *logLines
	}
	relays := map[string]logged{} // by what they trust
	for name, c := range map[string]struct {
		trusted []string
		header  []string
		want    string
	}{
		"no proxy is trusted":   {nil, []string{"192.0.2.1"}, "127.0.0.1"},
		"another is trusted":    {[]string{"10.0.0.0/8"}, []string{"192.0.2.1"}, "127.0.0.1"},
		"no header":             {[]string{"127.0.0.0/8"}, nil, "127.0.0.1"},
		"one":                   {[]string{"127.0.0.0/8"}, []string{"192.0.2.1"}, "192.0.2.1"},
		"the last that is none": {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"192.0.2.9, 192.0.2.1, 10.0.0.1, 10.0.0.2"}, "192.0.2.1"},
		"what clients claim":    {[]string{"127.0.0.0/8"}, []string{"192.0.2.9, 192.0.2.1"}, "192.0.2.1"},
		"several headers":       {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"192.0.2.9", "192.0.2.1 ,10.0.0.1", "10.0.0.2"}, "192.0.2.1"},
		"proxies alone":         {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"10.0.0.1,10.0.0.2"}, "10.0.0.1"},
		"IPv6":                  {[]string{"127.0.0.0/8"}, []string{"2001:DB8::1"}, "2001:db8::1"},
		"mapped":                {[]string{"127.0.0.0/8"}, []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		"garbage":               {[]string{"127.0.0.0/8"}, []string{"unknown"}, "127.0.0.1"},
		"garbage last":          {[]string{"127.0.0.0/8", "10.0.0.0/8"}, []string{"192.0.2.1, x, 10.0.0.1"}, "10.0.0.1"},
		"garbage before":        {[]string{"127.0.0.0/8"}, []string{"x, 192.0.2.1"}, "192.0.2.1"},
		"empty":                 {[]string{"127.0.0.0/8"}, []string{""}, "127.0.0.1"},
		"trailing comma":        {[]string{"127.0.0.0/8"}, []string{"192.0.2.1,"}, "127.0.0.1"},
		"zone":                  {[]string{"127.0.0.0/8"}, []string{"fe80::1%eth0"}, "fe80::1"},
	} {
		r, ok := relays[fmt.Sprint(c.trusted)]
		if !ok {
			r.log = new(logLines)
			r.relay = newRelay(t, setup{proxies: c.trusted, log: r.log.handler(slog.LevelInfo)})
			relays[fmt.Sprint(c.trusted)] = r
		}
		t.Run(name, func(t *testing.T) {
			refused := call{target: "/peers", unsigned: true}
			for _, value := range c.header {
				refused.header = append(refused.header, "X-Forwarded-For: "+value)
			}
			r.do(refused).wantReason(agentrelay.ReasonMissingHeaders)
			if got := r.log.last("request refused", "address"); got != c.want {
				t.Errorf("the client is taken to be %s, want %s", got, c.want)
			}
		})
	}
}

func TestSkew(t *testing.T) {
	clock := storetest.NewClock(start.Add(-time.Hour))
	r := newRelay(t, setup{clock: clock})
	clock.Advance(time.Hour)
	// The clock shows .589; whole seconds compare with it cut.
	now := start.Unix()
	for timestamp, skew := range map[string]string{
		fmt.Sprint(now): "", fmt.Sprint(now + 300): "", fmt.Sprint(now - 300): "",
		fmt.Sprint(now + 301): "300.411", fmt.Sprint(now - 301): "-301.589",
		fmt.Sprint(now+30) + ".589": "", fmt.Sprint(now-30) + ".589000000": "",
		fmt.Sprint(now+30) + ".590": "30.001", fmt.Sprint(now-30) + ".588": "-30.001", fmt.Sprint(now+31) + ".0": "30.411",
		fmt.Sprint(now+300) + ".0": "299.411", "0": "-1773480413.589",
	} {
		a := r.do(call{agent: "ann", target: "/peers", timestamp: timestamp})
		if skew == "" {
			a.want(http.StatusOK, nil)
			continue
		}
		f := a.wantReason(agentrelay.ReasonTimestampSkew)
		if f.ServerTime == nil || f.ServerTime.String() != "1773480413.589000" || f.SkewSeconds == nil || f.SkewSeconds.String() != skew {
			t.Errorf("timestamp %s: %s, want serverTime 1773480413.589 and skewSeconds %s", timestamp, a.body, skew)
		}
	}
}
