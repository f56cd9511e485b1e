package httpapi_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agent-relay/agent-relay/broker/httpapi"
)

// A broker behind a proxy answers to that and to this machine.
func TestProxiesOnly(t *testing.T) {
	r := newRelay(t, setup{})
	for _, c := range []struct {
		only   bool
		peer   string
		status int
	}{
		{true, "10.1.2.3:999", 200},
		{true, "127.0.0.1:999", 200},
		{true, "[::1]:999", 200},
		{true, "[::ffff:10.1.2.3]:999", 200},
		{true, "10.1.2.4:999", 421},
		{true, "nonsense", 421},
		{false, "10.1.2.4:999", 200},
	} {
		o := r.httpOptions(setup{proxies: []string{"10.1.2.3/32"}, log: slog.DiscardHandler})
		o.ProxiesOnly = c.only
		q := httptest.NewRequest(http.MethodGet, "/", nil)
		q.Host, q.RemoteAddr = "localhost", c.peer
		w := httptest.NewRecorder()
		httpapi.New(o).ServeHTTP(w, q)
		if w.Code != c.status {
			t.Errorf("%s, only proxies %v: %d, want %d", c.peer, c.only, w.Code, c.status)
		}
	}
}
