package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/httprate"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// rateWindow is the window of both rate limits.
const rateWindow = time.Minute

type limits struct {
	perAgent, perAddress *httprate.RateLimiter
}

func newLimits(perAgent, perAddress int) limits {
	silent := httprate.WithResponseHeaders(httprate.ResponseHeaders{})
	return limits{
		perAgent:   httprate.NewRateLimiter(perAgent, rateWindow, silent),
		perAddress: httprate.NewRateLimiter(perAddress, rateWindow, silent),
	}
}

// serve takes a request through the checks of PROTOCOL.md, in their order,
// and to its handler. What needs no body is checked before it is read.
func (a *API) serve(q *request, b *body) (answer, error) {
	if err := a.checkTarget(q.Request); err != nil {
		return answer{}, err
	}
	if q.ContentLength > b.limit {
		return answer{}, b.tooLarge()
	}
	if q.route.public {
		return q.route.handle(a, q)
	}
	if a.options.Deliver != nil && strings.HasPrefix(q.URL.Path, deliveryPrefix) {
		if q.noRoute != nil {
			return answer{}, q.noRoute
		}
		return q.route.deliver(a, q, b)
	}
	if err := a.authenticate(q, b); err != nil {
		return answer{}, err
	}
	if a.limits.perAgent.OnLimit(nil, q.Request, q.agent) {
		a.told.RateLimited(LimitPerAgent)
		return answer{}, rateLimited("this agent sends more requests than the broker allows it a minute")
	}
	if q.noRoute != nil {
		return answer{}, q.noRoute
	}
	return q.route.handle(a, q)
}

// checkTarget refuses requests that are not meant for this broker, or that a
// browser made for a web page.
func (a *API) checkTarget(r *http.Request) error {
	if !strings.HasPrefix(r.RequestURI, "/") && !strings.HasPrefix(r.RequestURI, "http") {
		return badRequest("the request target must be a path")
	}
	if a.options.ProxiesOnly && !a.throughProxy(r) {
		return &agentrelay.Error{
			Code:    agentrelay.CodeMisdirected,
			Message: "this broker is to be reached through its proxy; call that, or add this address to trusted_proxies in the broker's config",
		}
	}
	if !a.hosts.ours(r.Host) {
		return &agentrelay.Error{
			Code:    agentrelay.CodeMisdirected,
			Message: "this broker answers to loopback names and to public_hosts in its config; the Host header names another",
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if len(r.Header["Origin"]) > 0 || site != "" && site != "none" {
		return &agentrelay.Error{
			Code:    agentrelay.CodeOriginRefused,
			Message: "requests of web pages are refused; use a program of your own",
		}
	}
	return nil
}

// authenticate reads the body of a request whose credentials may hold, and
// verifies them. Over the limit of its address a refusal says so instead; a
// good signature is never affected.
func (a *API) authenticate(q *request, b *body) error {
	address := a.clientAddress(q.Request)
	return a.refused(q, address, a.verify(q, b, address))
}

// refused counts a request whose credentials do not hold, and returns err, or
// that there were too many of them.
func (a *API) refused(q *request, address string, err error) error {
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Code != agentrelay.CodeUnauthenticated && e.Code != agentrelay.CodeUnknownAgent && e.Code != agentrelay.CodeLocked {
		return err
	}
	a.audit.Info("request refused", "agent", q.agent, "address", address, "code", e.Code, "reason", e.Reason)
	if a.limits.perAddress.OnLimit(nil, q.Request, httprate.CanonicalizeIP(address)) {
		a.told.RateLimited(LimitPerAddress)
		return rateLimited("too many refused requests from this address; check the secret and the clock")
	}
	return err
}

func (a *API) verify(q *request, b *body, address string) error {
	given := broker.Credentials{
		Agent:     q.Header.Get(agentrelay.HeaderAgent),
		Timestamp: q.Header.Get(agentrelay.HeaderTimestamp),
		Signature: q.Header.Get(agentrelay.HeaderSignature),
		Address:   address,
		Prefix:    a.options.PublicPrefix,
	}
	if agentrelay.ValidName(given.Agent) {
		q.agent = given.Agent // for the log, also of what is refused
	}
	challenge, err := a.broker.Challenge(given)
	if err != nil {
		return err
	}
	if q.body, err = b.all(q.ContentLength); err != nil {
		return err
	}
	if q.caller, err = challenge.Verify(q.Method, q.RequestURI, q.body); err == nil {
		verified(q.Context())
	}
	return err
}

func rateLimited(message string) error {
	return &agentrelay.Error{Code: agentrelay.CodeRateLimited, Message: message, RetryAfter: rateWindow}
}

func badRequest(format string, args ...any) error {
	return &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
