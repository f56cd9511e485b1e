package httpapi_test

import (
	"net/http"
	"runtime"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// script lives through all that is counted. It returns how many requests were
// refused as locked, and how many of zed answered, before the limits.
func script(r *relay) (locked, polled float64) {
	t := r.t
	ann, ben := r.agent("ann"), r.agent("ben")

	// A message that expires with its lease.
	ann.send(ben, "old")
	r.clock.Advance(7*24*time.Hour - time.Hour)
	old := ben.pullOne(`{"leaseSeconds":7200}`)
	r.clock.Advance(time.Hour)
	ben.settle(old, "retry").want(http.StatusOK, nil)
	ben.wantState("old", "expired", 1)

	ann.send(ben, "m1", "m2", "m3")
	ann.post("/messages", `{"to":"ben","id":"m1","body":{"n":"m1"}}`).want(http.StatusOK, nil)
	ann.post("/messages", `{"to":"ben","id":"m1","body":{"n":"other"}}`).wantError(http.StatusUnprocessableEntity, agentrelay.CodeIDConflict)
	ann.post("/messages", `{"to":"nobody"}`).wantError(http.StatusNotFound, agentrelay.CodeNoSuchAgent)
	ben.poll("")
	r.store.wait(t, "Delivered", 1)
	ben.post("/messages/m1/ack", ``).want(http.StatusCreated, nil)
	ben.post("/messages/m2/ack", `{"status":"error","error":"no"}`).want(http.StatusCreated, nil)
	for range 4 {
		ben.settle(ben.pullOne(`{"limit":1}`), "retry").want(http.StatusOK, nil)
	}
	ann.post("/messages", `{"to":"ben","id":"m4","ack":true}`).want(http.StatusCreated, nil)
	ben.settle(ben.pullOne(``), "completed").want(http.StatusOK, nil)
	ann.send(ben, "m5", "m6")
	ben.pullOne(`{"limit":1}`)
	r.clock.Advance(90 * time.Second)

	r.do(call{target: "/peers", unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
	r.do(call{agent: "a b", target: "/peers"}).wantReason(agentrelay.ReasonBadAgentName)
	r.do(call{agent: "ann", target: "/peers", timestamp: "soon"}).wantReason(agentrelay.ReasonBadTimestamp)
	r.do(call{agent: "ann", target: "/peers", timestamp: "1"}).wantReason(agentrelay.ReasonTimestampSkew)
	r.wantBad("eve", 5)
	for r.do(good("eve")).status == http.StatusForbidden {
		locked++
	}
	for r.do(good("zed")).status == http.StatusOK {
		polled++
	}
	ann.post("/messages/a//b/ack", ``).wantError(http.StatusBadRequest, agentrelay.CodeBadRequest)
	ann.post("/nothing", ``).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
	r.do(call{agent: "ann", method: http.MethodPut, target: "/messages/x/ack"}).wantError(http.StatusMethodNotAllowed, agentrelay.CodeMethodNotAllowed)
	r.do(call{method: http.MethodHead, target: "/", unsigned: true}).want(http.StatusOK, nil)
	r.do(call{target: "/healthz", unsigned: true, host: "elsewhere"}).wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
	return locked, polled
}

// counted is what must have been counted when script is over.
func counted(locked, polled float64) map[string]float64 {
	return map[string]float64{
		`build_info{go_version="` + runtime.Version() + `",version="` + version + `"}`: 1,

		`http_requests_total{method="POST",route="/register",status="200"}`:           2,
		`http_requests_total{method="POST",route="/messages",status="201"}`:           7,
		`http_requests_total{method="POST",route="/messages",status="200"}`:           1,
		`http_requests_total{method="POST",route="/messages",status="422"}`:           1,
		`http_requests_total{method="POST",route="/messages",status="404"}`:           1,
		`http_requests_total{method="GET",route="/messages",status="200"}`:            1,
		`http_requests_total{method="POST",route="/messages/{id}/ack",status="201"}`:  2,
		`http_requests_total{method="POST",route="/messages/{id}/ack",status="400"}`:  1,
		`http_requests_total{method="other",route="/messages/{id}/ack",status="405"}`: 1,
		`http_requests_total{method="POST",route="/v1/pull",status="200"}`:            7,
		`http_requests_total{method="POST",route="/v1/ack",status="200"}`:             6,
		`http_requests_total{method="POST",route="/v1/status",status="200"}`:          1,
		`http_requests_total{method="GET",route="/peers",status="200"}`:               polled,
		`http_requests_total{method="GET",route="/peers",status="401"}`:               9,
		`http_requests_total{method="GET",route="/peers",status="403"}`:               locked,
		`http_requests_total{method="GET",route="/peers",status="429"}`:               2,
		`http_requests_total{method="POST",route="unknown",status="404"}`:             1,
		`http_requests_total{method="HEAD",route="/",status="200"}`:                   1,
		`http_requests_total{method="GET",route="/healthz",status="421"}`:             1,
		`http_request_duration_seconds_count{route="/register"}`:                      2,
		`http_request_duration_seconds_count{route="/messages"}`:                      11,
		`http_request_duration_seconds_count{route="/messages/{id}/ack"}`:             4,
		`http_request_duration_seconds_count{route="/v1/pull"}`:                       7,
		`http_request_duration_seconds_count{route="/v1/ack"}`:                        6,
		`http_request_duration_seconds_count{route="/v1/status"}`:                     1,
		`http_request_duration_seconds_count{route="/peers"}`:                         polled + 9 + locked + 2,
		`http_request_duration_seconds_count{route="unknown"}`:                        1,
		`http_request_duration_seconds_count{route="/"}`:                              1,
		`http_request_duration_seconds_count{route="/healthz"}`:                       1,
		`http_rate_limited_total{limit="per_agent"}`:                                  1,
		`http_rate_limited_total{limit="per_address"}`:                                1,

		`auth_failures_total{reason="missing_headers"}`: 1,
		`auth_failures_total{reason="bad_agent_name"}`:  1,
		`auth_failures_total{reason="bad_timestamp"}`:   1,
		`auth_failures_total{reason="timestamp_skew"}`:  1,
		`auth_failures_total{reason="bad_signature"}`:   5,

		`auth_failures_total{reason="replayed"}`:            0,
		`auth_failures_total{reason="before_start"}`:        0,
		`auth_failures_total{reason="single_use_required"}`: 0,
		`auth_failures_total{reason="unknown_agent"}`:       0,
		`hooks_events_total`:                                0,
		`hooks_failed_total`:                                0,
		`hooks_dropped_total`:                               0,
		`hooks_running`:                                     0,
		`hooks_waiting`:                                     0,
		`locked_requests_total`:                             locked + 1,
		`waiting_polls`:                                     0,

		`messages_accepted_total{type="message"}`:      7,
		`messages_accepted_total{type="ack"}`:          4, // for m1, m2, m3, m4
		`messages_duplicate_total`:                     1,
		`messages_conflict_total`:                      1,
		`messages_delivered_total`:                     6, // not m6
		`messages_acked_total{outcome="ok"}`:           2, // m1, m4
		`messages_acked_total{outcome="error"}`:        1, // m2
		`messages_failed_total{reason="acknowledged"}`: 1,
		`messages_failed_total{reason="attempts"}`:     1, // m3
		`messages_failed_total{reason="cancelled"}`:    0,
		`messages_expired_total`:                       1,
		`messages_requeued_total`:                      3, // m3
		`messages_queued`:                              5, // m6 and the receipts
		`messages_leased`:                              1, // m5
		`oldest_queued_message_age_seconds`:            90,
	}
}
