package httpapi

import (
	"net/http"
	"time"
)

// Observer is told of requests. Its methods are called by several at once, and
// must not block. What is passed as text is one of a few words, whatever
// clients send.
type Observer interface {
	// Request tells that a request was answered. route is the path of its route
	// as PROTOCOL.md writes it, or "unknown"; method is GET, HEAD, POST or
	// "other".
	Request(route, method string, status int)
	// Took tells how long a request took that could not wait for a message, from
	// its headers until its answer was written.
	Took(route string, took time.Duration)
	// RateLimited tells that a request was refused over a limit.
	RateLimited(limit string)
}

// The limits that RateLimited names.
const (
	LimitPerAgent   = "per_agent"
	LimitPerAddress = "per_address"
)

// nobody is the default Observer.
type nobody struct{}

func (nobody) Request(string, string, int) {}
func (nobody) Took(string, time.Duration)  {}
func (nobody) RateLimited(string)          {}

// observe tells the observer of a request that was answered.
func (a *API) observe(q *request, status int, took time.Duration) {
	path, method := "unknown", "other"
	if q.route.path != "" {
		path = q.route.path
	}
	switch q.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		method = q.Method
	}
	a.told.Request(path, method, status)
	if !q.mayWait {
		a.told.Took(path, took)
	}
}
