package setup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

// maxClockError is how far the broker's clock may be from this one: far less
// than the 30 s at which requests are refused, far more than the second to
// which the broker's Date header is exact.
const maxClockError = 5 * time.Second

// broker makes the checks that call the broker. Without an answer to the first
// the rest is not tried.
func (o *SelfcheckOptions) broker(ctx context.Context, r *Report) {
	transport, err := o.newTransport()
	if err != nil {
		r.add(checkPort, fail("name a file that holds the certificates in PEM form in ca_file", "%v", err))
		notChecked(r)
		return
	}
	clock := &clockReader{next: transport}
	defer clock.next.CloseIdleConnections()
	a, err := o.client("selfcheck-a", clock)
	if err == nil {
		var b *client.Client
		if b, err = o.client("selfcheck-b", clock); err == nil {
			o.brokerChecks(ctx, r, clock, a, b)
			return
		}
	}
	r.add(checkPort, fail("correct listen in the config, or --url", "%v", err))
	notChecked(r)
}

func (o *SelfcheckOptions) brokerChecks(ctx context.Context, r *Report, clock *clockReader, a, b *client.Client) {
	answer, err := a.Handshake(ctx)
	if err != nil {
		r.add(checkPort, o.portFailure(err))
		notChecked(r)
		return
	}
	r.add(checkPort, pass("a broker answers at %s", a.URL()))
	r.add(checkVersion, o.version(answer))
	r.add(checkClock, clock.check())
	r.add(checkRoundTrip, o.roundTrip(ctx, a, b))
}

func notChecked(r *Report) {
	for _, name := range []string{checkVersion, checkClock, checkRoundTrip} {
		r.add(name, fail("mend the port first", "not checked"))
	}
}

func (o *SelfcheckOptions) client(agent string, transport http.RoundTripper) (*client.Client, error) {
	return client.New(client.Options{
		URL: o.URL, CAFile: o.CAFile, Agent: agent, Secret: o.Secret, Timeout: o.Timeout,
		UserAgent: "agent-relay-selfcheck/" + o.Version, Transport: transport, Pauses: client.NoRetries,
	})
}

func (o *SelfcheckOptions) portFailure(err error) Check {
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return fail("start the broker: "+o.Command+" serve", "no broker answers at %s", o.URL)
	case errors.Is(err, client.ErrNotRelay):
		return fail("stop that program, or set another listen in the config", "something else answers at %s", o.URL)
	case errors.Is(err, client.ErrTimeout):
		return fail("see what holds the port, and restart the broker if it does", "%v", err)
	}
	return fail("see the broker's log", "%v", err)
}

func (o *SelfcheckOptions) version(b client.Broker) Check {
	if b.Version != o.Version {
		return fail("restart the broker, or call the program of its version", "the broker is %s, this program %s", b.Version, o.Version)
	}
	return pass("broker and program are %s", o.Version)
}

// newTransport is that of net/http, without what it shares with others. It
// uses no proxy to reach this machine.
func (o *SelfcheckOptions) newTransport() (*http.Transport, error) {
	trust, err := client.TLSConfig(o.CAFile)
	return &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, TLSClientConfig: trust}, err
}

// clockReader notes the broker's clock as its answers show it.
type clockReader struct {
	next *http.Transport

	mu    sync.Mutex
	known bool
	// The broker's clock minus ours is between these.
	least, most time.Duration
}

func (c *clockReader) RoundTrip(req *http.Request) (*http.Response, error) {
	before := time.Now()
	resp, err := c.next.RoundTrip(req)
	after := time.Now()
	if err != nil {
		return nil, err
	}
	if date, dateErr := http.ParseTime(resp.Header.Get("Date")); dateErr == nil {
		c.mu.Lock()
		// Date is cut to whole seconds.
		c.least, c.most, c.known = date.Sub(after), date.Add(time.Second).Sub(before), true
		c.mu.Unlock()
	}
	return resp, nil
}

func (c *clockReader) check() Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	const remedy = "set both clocks by NTP; requests more than 30 s off are refused"
	switch {
	case !c.known:
		return fail("see whether a proxy removes the Date header", "the broker's answer shows no clock")
	case c.least > maxClockError:
		return fail(remedy, "the broker's clock is %s ahead", c.least.Round(time.Second))
	case c.most < -maxClockError:
		return fail(remedy, "the broker's clock is %s behind", -c.most.Round(time.Second))
	}
	return pass("the broker's clock agrees within %s", maxClockError)
}

// roundTrip sends a message from a to b, which acknowledges it, and waits for
// the receipt.
func (o *SelfcheckOptions) roundTrip(ctx context.Context, a, b *client.Client) Check {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	start := time.Now()
	for _, c := range []*client.Client{a, b} {
		err := c.Register(ctx)
		if o.RequireAgentKeys && errors.Is(err, agentrelay.ErrUnknownAgent) {
			return pass("no message was sent: only agents with keys of their own are let in")
		}
		if err != nil {
			return o.roundTripFailure("register "+c.Agent(), err)
		}
	}
	sent, err := a.Send(ctx, client.Outgoing{To: b.Agent(), Body: client.TextBody("selfcheck")})
	if err != nil {
		return o.roundTripFailure("send a message", err)
	}
	receipt, err := receive(ctx, b, sent.ID)
	if err != nil {
		// What was sent is not to stay in the inbox.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Timeout)
		defer cancel()
		_, _ = b.Ack(last, sent.ID, client.AckOptions{})
		return o.roundTripFailure("receive the message", err)
	}
	if err := collectReceipt(ctx, a, sent.ID, receipt); err != nil {
		return o.roundTripFailure("get the receipt", err)
	}
	return pass("sent, received, acknowledged, receipt, in %s", time.Since(start).Round(time.Millisecond))
}

func (o *SelfcheckOptions) roundTripFailure(what string, err error) Check {
	remedy := "see the broker's log"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(remedy, "%s: it did not come within %s", what, o.Timeout)
	case errors.Is(err, &agentrelay.Error{Code: agentrelay.CodeUnauthenticated, Reason: agentrelay.ReasonBadSignature}):
		remedy = "this config's secret is not the running broker's: restart the broker, or name its config with --config"
	case errors.Is(err, agentrelay.ErrUnknownAgent):
		remedy = "the running broker has another config, or this agent was given keys: restart it, or remove the agent"
	case errors.Is(err, agentrelay.ErrLocked):
		remedy = "earlier bad signatures locked the agent out: wait, then try again"
	case errors.Is(err, agentrelay.ErrStorageFull):
		remedy = "free space on the disk of the data directory"
	case errors.Is(err, agentrelay.ErrForbidden):
		remedy = "let selfcheck-a send to selfcheck-b under agents in the config"
	}
	return fail(remedy, "%s: %v", what, err)
}

// leftoverAge is how old a message to one of the two agents must be to have
// been left behind, and not to be that of another selfcheck under way.
const leftoverAge = time.Minute

// receive waits for a message in c's inbox and acknowledges it, and what was
// left behind there. It returns the id of the message's receipt.
func receive(ctx context.Context, c *client.Client, id string) (receipt string, err error) {
	cursor := ""
	for {
		page, err := c.Poll(ctx, client.PollOptions{Since: cursor, Limit: agentrelay.MaxLimit, Wait: time.Second})
		if err != nil {
			return "", err
		}
		cursor = page.Cursor
		for _, m := range page.Messages {
			if m.ID != id && time.Since(m.TS) < leftoverAge {
				continue
			}
			got, err := c.Ack(ctx, m.ID, client.AckOptions{})
			switch {
			case m.ID == id && err != nil:
				return "", err
			case m.ID == id:
				receipt = got
			}
		}
		if receipt != "" {
			return receipt, nil
		}
	}
}

// collectReceipt waits for the receipt of a message in c's inbox and takes it
// out, with what was left behind there before it. Receipts cannot be
// acknowledged, so they are leased and settled. Those that another selfcheck
// under way waits for come back to it when their lease ends.
func collectReceipt(ctx context.Context, c *client.Client, id, receipt string) error {
	cursor, seen := "", 0
	for {
		page, err := c.Poll(ctx, client.PollOptions{Since: cursor, Limit: agentrelay.MaxLimit, Wait: time.Second})
		if err != nil {
			return err
		}
		cursor = page.Cursor
		for _, m := range page.Messages {
			seen++
			if m.ID != receipt {
				continue
			}
			if m.Type != agentrelay.TypeAck || m.ReplyTo != id {
				return fmt.Errorf("message %s is no receipt of %s", m.ID, id)
			}
			// Only what is older is leased along with it.
			if done, err := takeOut(ctx, c, receipt, seen); done || err != nil {
				return err
			}
		}
	}
}

// takeOut leases so many messages and settles those that are to go. done says
// that the receipt was among them.
func takeOut(ctx context.Context, c *client.Client, receipt string, limit int) (done bool, err error) {
	for left := limit; left > 0; left -= agentrelay.MaxLimit {
		leased, err := c.Pull(ctx, client.PullOptions{Limit: min(left, agentrelay.MaxLimit), Lease: 2 * time.Second})
		if err != nil {
			return false, err
		}
		for _, m := range leased {
			if m.ID != receipt && time.Since(m.TS) < leftoverAge {
				continue
			}
			_, err := c.Settle(ctx, client.Settlement{ID: m.ID, LeaseID: m.LeaseID, Outcome: agentrelay.OutcomeCompleted})
			switch {
			case errors.Is(err, agentrelay.ErrNotLeased), errors.Is(err, agentrelay.ErrLeaseMismatch):
				// Too late: it is queued again.
			case err != nil:
				return false, err
			case m.ID == receipt:
				done = true
			}
		}
	}
	return done, nil
}
