// Package httpapi speaks protocol 1.0 over HTTP: it reads requests, has the
// broker judge and answer them, and writes the answers. It decides nothing
// itself but how often somebody may ask.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/broker"
)

// Options are what the API needs.
type Options struct {
	Broker *broker.Broker
	// Version is the program's, Storage the kind of store; GET / tells both.
	Version, Storage string
	// PublicHosts are names, beside the loopback ones, under which requests
	// may ask for this broker.
	PublicHosts []string
	// TrustedProxies may say for whom they ask, in X-Forwarded-For.
	TrustedProxies []netip.Prefix
	// ProxiesOnly refuses requests that come neither from a trusted proxy nor
	// from this machine.
	ProxiesOnly bool
	// PublicPrefix is the path that proxies cut off: a signature may be over the
	// request target with it.
	PublicPrefix string
	// MaxBodyBytes bounds a request's body.
	MaxBodyBytes int64
	// Lease is the lease of a pull that names none.
	Lease time.Duration
	// PerAgent and PerAddress are requests a minute: authenticated ones of one
	// agent, refused ones of one address.
	PerAgent, PerAddress int
	Log                  *slog.Logger
	// Observer is told of requests. Default: nobody is.
	Observer Observer
	// Metrics returns what GET /metrics answers, in Prometheus' text format.
	// Default: there is no such route.
	Metrics func(context.Context) ([]byte, error)
	// Deliver verifies and stores an event that a connector posted, given the
	// two headers that sign it. Default: there is no such route.
	Deliver func(ctx context.Context, connector, timestamp, signature string, body []byte) (id string, duplicate bool, err error)
}

// API is the http.Handler.
type API struct {
	options Options
	broker  *broker.Broker
	log     *slog.Logger
	audit   *slog.Logger
	hosts   hosts
	limits  limits
	routes  []route
	// unverified bounds bodies of unknown senders.
	unverified *unverified
	told       Observer
	// fullSaid is when it was logged that the disk is full.
	fullSaid seldom
}

// New returns the handler.
func New(o Options) *API {
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	return &API{
		options: o,
		broker:  o.Broker,
		log:     o.Log,
		audit:   broker.Audit(o.Log),
		hosts:   newHosts(o.PublicHosts),
		limits:  newLimits(o.PerAgent, o.PerAddress),
		routes:  offered(o),
		told:    o.Observer,

		unverified: newUnverified(maxUnverified),
	}
}

// errGone is answered to a client that closed its side of the connection while
// it waited.
var errGone = &agentrelay.Error{
	Code:    agentrelay.CodeBusy,
	Message: "the connection was closed on the client's side before the answer was there; keep it open and try again",
}

// request is one on its way through the checks. A handler sees one that passed
// them.
type request struct {
	*http.Request
	// agent is who asks, or, until that is verified, who it says it is; empty
	// if that is no agent's name.
	agent string
	// caller signs the answer, once the request was verified.
	caller broker.Caller
	body   []byte
	// route is the one that fits the path, if any, and id the message id in it.
	route route
	id    string
	// noRoute is why the request has no route.
	noRoute error
	// mayWait says that the answer may be held until there is a message.
	mayWait bool
}

// answer is what a handler returns.
type answer struct {
	status int
	body   []byte
	// contentType is what the body is. Default: JSON.
	contentType string
	// sent, unless nil, is called when the answer was written; reached is false
	// if it demonstrably did not reach the client.
	sent func(reached bool)
}

func ok(body []byte) (answer, error) { return answer{status: http.StatusOK, body: body}, nil }

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	q := &request{Request: r}
	q.route, q.id, q.noRoute = a.findRoute(r)
	body := &body{from: r.Body, limit: a.options.MaxBodyBytes, control: http.NewResponseController(w), unverified: a.unverified}
	result, err := a.serve(q, body)
	if gone := r.Context().Err(); gone != nil && (result.sent != nil || errors.Is(err, gone)) {
		// The client is gone, or it closed its side and may read on: net/http
		// cannot tell. What it came for stays here, and the answer says so.
		if result.sent != nil {
			result.sent(false)
		}
		result, err = answer{}, errGone
	}
	if err != nil {
		result = a.refusal(w, r, err)
	}
	a.write(w, q, body, result)
	took := time.Since(began)
	a.observe(q, result.status, took)
	a.log.Debug("request", "method", r.Method, "path", r.URL.Path, "agent", q.agent, "status", result.status, "duration", took)
}

// write sends an answer. A body that nobody read is drained afterwards, within
// bounds, so that a client that is still sending gets to read the answer.
func (a *API) write(w http.ResponseWriter, q *request, b *body, result answer) {
	unread := !b.read && q.ContentLength != 0
	if unread {
		b.letAnswerFirst()
	}
	signed := result.body
	if q.Method == http.MethodHead {
		signed = nil
	}
	if signature := q.caller.Sign(result.status, signed); signature != "" {
		w.Header().Set(agentrelay.HeaderSignature, signature)
	}
	// A poll may have waited long; its answer gets its own time, which the server
	// takes back when it is written.
	_ = b.control.SetWriteDeadline(time.Now().Add(answerTimeout))
	writeHeader(w, result)
	_, err := w.Write(result.body)
	if err == nil && (unread || result.sent != nil) {
		err = b.control.Flush()
	}
	if result.sent != nil {
		result.sent(err == nil)
	}
	if unread && q.Header.Get("Expect") == "" {
		b.drain()
	}
}
