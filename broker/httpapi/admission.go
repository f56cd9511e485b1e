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
func (a *API) serve(r *http.Request, b *body) (answer, error) {
	if err := a.checkTarget(r); err != nil {
		return answer{}, err
	}
	if r.ContentLength > b.limit {
		return answer{}, b.tooLarge()
	}
	if rt, found := publicRoute(r); found {
		return rt.handle(a, &request{Request: r})
	}
	q, err := a.authenticate(r, b)
	if err != nil {
		return answer{}, err
	}
	if a.limits.perAgent.OnLimit(nil, r, q.agent) {
		return answer{}, rateLimited("this agent sends more requests than the broker allows it a minute")
	}
	rt, id, err := findRoute(r)
	if err != nil {
		return answer{}, err
	}
	q.id = id
	return rt.handle(a, q)
}

// checkTarget refuses requests that are not meant for this broker, or that a
// browser made for a web page.
func (a *API) checkTarget(r *http.Request) error {
	if !strings.HasPrefix(r.RequestURI, "/") && !strings.HasPrefix(r.RequestURI, "http") {
		return badRequest("the request target must be a path")
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
func (a *API) authenticate(r *http.Request, b *body) (*request, error) {
	address := a.clientAddress(r)
	q, err := a.verify(r, b, address)
	var e *agentrelay.Error
	if !errors.As(err, &e) || e.Code != agentrelay.CodeUnauthenticated && e.Code != agentrelay.CodeLocked {
		return q, err
	}
	a.log.Info("request refused", "agent", q.agent, "address", address, "code", e.Code, "reason", e.Reason)
	if a.limits.perAddress.OnLimit(nil, r, httprate.CanonicalizeIP(address)) {
		return nil, rateLimited("too many refused requests from this address; check the secret and the clock")
	}
	return nil, err
}

func (a *API) verify(r *http.Request, b *body, address string) (*request, error) {
	given := broker.Credentials{
		Agent:     r.Header.Get(agentrelay.HeaderAgent),
		Timestamp: r.Header.Get(agentrelay.HeaderTimestamp),
		Signature: r.Header.Get(agentrelay.HeaderSignature),
		Address:   address,
	}
	q := &request{Request: r}
	challenge, err := a.broker.Challenge(given)
	if err != nil {
		return q, err
	}
	q.agent = given.Agent
	if q.body, err = b.all(r.ContentLength); err != nil {
		return q, err
	}
	return q, challenge.Verify(r.Method, r.RequestURI, q.body)
}

func rateLimited(message string) error {
	return &agentrelay.Error{Code: agentrelay.CodeRateLimited, Message: message, RetryAfter: rateWindow}
}

func badRequest(format string, args ...any) error {
	return &agentrelay.Error{Code: agentrelay.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
