package httpapi

import "net/http"

const (
	metricsPath = "/metrics"
	// metricsType is Prometheus' text format
	// (https://prometheus.io/docs/instrumenting/exposition_formats/).
	metricsType = "text/plain; version=0.0.4; charset=utf-8"
)

// metrics tells what was counted. It is a route only if there is something to
// tell.
func (a *API) metrics(q *request) (answer, error) {
	text, err := a.options.Metrics(q.Context())
	return answer{status: http.StatusOK, body: text, contentType: metricsType}, err
}
