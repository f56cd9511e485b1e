package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	agentrelay "github.com/agent-relay/agent-relay"
)

// route is one call of the protocol.
type route struct {
	method, path string
	// public routes are answered to everybody.
	public bool
	handle func(*API, *request) (answer, error)
	// deliver, instead of handle, verifies the request itself.
	deliver func(*API, *request, *body) (answer, error)
}

// ackPath is the one path with a parameter: the message id is all between its
// ends, slashes included.
const (
	ackPath   = "/messages/{id}/ack"
	ackPrefix = "/messages/"
	ackSuffix = "/ack"
)

// deliveryPath is where connectors post events.
const (
	deliveryPath   = "/connectors/{name}/inbound"
	deliveryPrefix = "/connectors/"
	deliverySuffix = "/inbound"
)

// routes is the whole protocol.
var routes = []route{
	{method: http.MethodGet, path: "/", public: true, handle: (*API).info},
	{method: http.MethodGet, path: "/healthz", public: true, handle: (*API).health},
	{method: http.MethodGet, path: metricsPath, public: true, handle: (*API).metrics},
	{method: http.MethodPost, path: "/register", handle: (*API).register},
	{method: http.MethodGet, path: "/peers", handle: (*API).peers},
	{method: http.MethodPost, path: "/messages", handle: (*API).send},
	{method: http.MethodGet, path: "/messages", handle: (*API).poll},
	{method: http.MethodPost, path: ackPath, handle: (*API).acknowledge},
	{method: http.MethodPost, path: "/v1/pull", handle: (*API).pull},
	{method: http.MethodPost, path: "/v1/ack", handle: (*API).settle},
	{method: http.MethodPost, path: "/v1/lease/renew", handle: (*API).renew},
	{method: http.MethodPost, path: "/v1/status", handle: (*API).status},
	{method: http.MethodPost, path: "/v1/recent", handle: (*API).recent},
	{method: http.MethodPost, path: "/v1/messages/query", handle: (*API).query},
	{method: http.MethodPost, path: deliveryPath, deliver: (*API).deliver},
}

// offered are the routes of an API with these options.
func offered(o Options) []route {
	return slices.DeleteFunc(slices.Clone(routes), func(rt route) bool {
		return rt.path == metricsPath && o.Metrics == nil || rt.path == deliveryPath && o.Deliver == nil
	})
}

// findRoute finds a request's route, and the message id or the connector's name in
// its path. HEAD is
// GET without the body (RFC 9110 section 9.3.2), for public routes alone. With
// an error, found has no more than the path of a route that the request missed,
// if any.
func (a *API) findRoute(r *http.Request) (found route, id string, err error) {
	path := r.URL.Path
	if escaped, ok := ackID(r.URL.EscapedPath()); ok {
		path = ackPath
		if id, err = url.PathUnescape(escaped); err != nil || !agentrelay.WellFormedID(id) {
			return route{path: ackPath}, "", badRequest("the path holds no message id between /messages/ and /ack")
		}
	}
	if name, ok := deliveryName(path); ok {
		path, id = deliveryPath, name
	}
	var allowed []string
	for _, rt := range a.routes {
		if rt.path != path {
			continue
		}
		if rt.method == r.Method || rt.public && r.Method == http.MethodHead {
			return rt, id, nil
		}
		allowed = append(allowed, rt.method)
		if rt.public {
			allowed = append(allowed, http.MethodHead)
		}
	}
	if len(allowed) > 0 {
		return route{path: path}, "", methodNotAllowed{allowed}
	}
	return route{}, "", &agentrelay.Error{Code: agentrelay.CodeNotFound, Message: "this broker has no such route"}
}

func ackID(path string) (id string, ok bool) {
	id, found := strings.CutPrefix(path, ackPrefix)
	if !found {
		return "", false
	}
	return strings.CutSuffix(id, ackSuffix)
}

func deliveryName(path string) (name string, ok bool) {
	name, found := strings.CutPrefix(path, deliveryPrefix)
	if !found {
		return "", false
	}
	name, found = strings.CutSuffix(name, deliverySuffix)
	return name, found && agentrelay.ValidName(name)
}

// methodNotAllowed carries what the Allow header needs.
type methodNotAllowed struct{ allowed []string }

func (m methodNotAllowed) Error() string {
	return fmt.Sprintf("this route takes %s", strings.Join(m.allowed, ", "))
}

func (m methodNotAllowed) allow() string {
	methods := slices.Clone(m.allowed)
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}
