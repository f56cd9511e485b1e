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
}

// ackPath is the one path with a parameter: the message id is all between its
// ends, slashes included.
const (
	ackPath   = "/messages/{id}/ack"
	ackPrefix = "/messages/"
	ackSuffix = "/ack"
)

// routes is the whole protocol.
var routes = []route{
	{http.MethodGet, "/", true, (*API).info},
	{http.MethodGet, "/healthz", true, (*API).health},
	{http.MethodGet, metricsPath, true, (*API).metrics},
	{http.MethodPost, "/register", false, (*API).register},
	{http.MethodGet, "/peers", false, (*API).peers},
	{http.MethodPost, "/messages", false, (*API).send},
	{http.MethodGet, "/messages", false, (*API).poll},
	{http.MethodPost, ackPath, false, (*API).acknowledge},
	{http.MethodPost, "/v1/pull", false, (*API).pull},
	{http.MethodPost, "/v1/ack", false, (*API).settle},
	{http.MethodPost, "/v1/lease/renew", false, (*API).renew},
	{http.MethodPost, "/v1/status", false, (*API).status},
	{http.MethodPost, "/v1/recent", false, (*API).recent},
	{http.MethodPost, "/v1/messages/query", false, (*API).query},
}

// offered are the routes of an API with these options.
func offered(o Options) []route {
	return slices.DeleteFunc(slices.Clone(routes), func(rt route) bool {
		return rt.path == metricsPath && o.Metrics == nil
	})
}

// findRoute finds a request's route, and the message id in its path. HEAD is
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
