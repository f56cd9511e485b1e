package httpapi

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// statuses maps each code to its HTTP status. It is the only place that does.
var statuses = map[agentrelay.Code]int{
	agentrelay.CodeBadRequest:       http.StatusBadRequest,
	agentrelay.CodeUnauthenticated:  http.StatusUnauthorized,
	agentrelay.CodeUnknownAgent:     http.StatusUnauthorized,
	agentrelay.CodeLocked:           http.StatusForbidden,
	agentrelay.CodeForbidden:        http.StatusForbidden,
	agentrelay.CodeOriginRefused:    http.StatusForbidden,
	agentrelay.CodeNoSuchAgent:      http.StatusNotFound,
	agentrelay.CodeNoSuchMessage:    http.StatusNotFound,
	agentrelay.CodeNotFound:         http.StatusNotFound,
	agentrelay.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	agentrelay.CodeNotLeased:        http.StatusConflict,
	agentrelay.CodeLeaseMismatch:    http.StatusConflict,
	agentrelay.CodeBodyTooLarge:     http.StatusRequestEntityTooLarge,
	agentrelay.CodeMisdirected:      http.StatusMisdirectedRequest,
	agentrelay.CodeIDConflict:       http.StatusUnprocessableEntity,
	agentrelay.CodeHookRejected:     http.StatusUnprocessableEntity,
	agentrelay.CodeRateLimited:      http.StatusTooManyRequests,
	agentrelay.CodeQueueFull:        http.StatusTooManyRequests,
	agentrelay.CodeBusy:             http.StatusServiceUnavailable,
	agentrelay.CodeStorageFull:      http.StatusInsufficientStorage,
}

// refusal is the answer to a request that failed.
func (a *API) refusal(w http.ResponseWriter, r *http.Request, err error) answer {
	var method methodNotAllowed
	if errors.As(err, &method) {
		w.Header().Set("Allow", method.allow())
		err = &agentrelay.Error{Code: agentrelay.CodeMethodNotAllowed, Message: method.Error()}
	}
	e := agentrelay.Wrap(err)
	if e.Err != nil && (e.Code != agentrelay.CodeStorageFull || a.fullSaid.now()) {
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "code", e.Code, "error", e.Err)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	return answer{status: statuses[e.Code], body: appendError(nil, e)}
}

// sayEvery is how often at most it is logged that the disk is full.
const sayEvery = time.Minute

// seldom lets something be said once in a while.
type seldom struct {
	mu   sync.Mutex
	said time.Time
}

func (s *seldom) now() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.said.IsZero() && time.Since(s.said) < sayEvery {
		return false
	}
	s.said = time.Now()
	return true
}

// appendError appends an error answer. The cause is not in it.
func appendError(b []byte, e *agentrelay.Error) []byte {
	b = agentrelay.AppendString(append(b, `{"error":{"code":`...), string(e.Code))
	b = agentrelay.AppendString(append(b, `,"message":`...), e.Message)
	if e.Reason != "" {
		b = agentrelay.AppendString(append(b, `,"reason":`...), string(e.Reason))
	}
	if !e.ServerTime.IsZero() {
		b = append(b, `,"serverTime":`...)
		b = strconv.AppendFloat(b, float64(e.ServerTime.UnixMicro())/1e6, 'f', 6, 64)
		b = append(b, `,"skewSeconds":`...)
		b = strconv.AppendFloat(b, e.Skew.Seconds(), 'f', 3, 64)
	}
	if e.Code == agentrelay.CodeNoSuchAgent {
		b = append(b, `,"suggestions":[`...)
		for i, name := range e.Suggestions {
			if i > 0 {
				b = append(b, ',')
			}
			b = agentrelay.AppendString(b, name)
		}
		b = append(b, ']')
	}
	return append(b, '}', '}')
}

// writeHeader sends the status and the headers that every answer has.
func writeHeader(w http.ResponseWriter, result answer) {
	h := w.Header()
	h.Set("Content-Type", cmp.Or(result.contentType, "application/json; charset=utf-8"))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(result.body)))
	w.WriteHeader(result.status)
}
