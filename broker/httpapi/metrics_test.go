package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// scrape reads /metrics as Prometheus does.
func (r *relay) scrape() (text string, series map[string]float64) {
	r.t.Helper()
	a := r.do(call{target: "/metrics", unsigned: true})
	a.want(http.StatusOK, nil)
	series = map[string]float64{}
	for line := range strings.Lines(a.body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			r.t.Fatalf("%q is no sample: %v", line, err)
		}
		series[line[:at]] = value
	}
	return a.body, series
}

// scrapeUntil scrapes until a series has a value.
func (r *relay) scrapeUntil(name string, want float64) (text string, series map[string]float64) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		if text, series = r.scrape(); series[name] == want {
			return text, series
		}
	}
	r.t.Fatalf("%s is %v, want %v", name, series[name], want)
	return "", nil
}

// measured are series whose values depend on the machine.
var measured = regexp.MustCompile(`^agent_relay_(http_request_duration_seconds_(bucket|sum)\b.*|store_.*)$`)

func TestMetricsCountWhatHappens(t *testing.T) {
	r := newRelay(t, setup{perAgent: 60, perAddress: 20})
	want := counted(script(r))
	text, series := r.scrape()
	got := map[string]float64{}
	for name, value := range series {
		short, ours := strings.CutPrefix(name, "agent_relay_")
		if ours && !measured.MatchString(name) {
			got[short] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics differ (-want +got):\n%s", diff)
	}
	for _, name := range []string{"commit_operations_count", "commit_operations_sum", "commit_duration_seconds_count", "database_bytes", "wal_bytes"} {
		if series["agent_relay_store_"+name] <= 0 {
			t.Errorf("%s is %v", name, series["agent_relay_store_"+name])
		}
	}
	for _, name := range []string{"go_goroutines", "go_info"} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("there is no %s", name)
		}
	}

	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if diff := cmp.Diff(documented(t), described(text)); diff != "" {
		t.Errorf("PROTOCOL.md and the metrics differ (-documented +real):\n%s", diff)
	}
}

// documented is the table of metrics in PROTOCOL.md: type and labels by name.
func documented(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(doc, []byte("\n### `GET /metrics`\n"))
	section, _, found := bytes.Cut(rest, []byte("\n### "))
	if !found {
		t.Fatal("PROTOCOL.md has no section on GET /metrics")
	}
	metrics := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(agent_relay_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|[^|]*\\| [^|]+ \\|$")
	for _, m := range row.FindAllSubmatch(section, -1) {
		var labels []string
		for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(m[3], -1) {
			labels = append(labels, string(l[1]))
		}
		slices.Sort(labels)
		metrics[string(m[1])] = fmt.Sprint(string(m[2]), labels)
	}
	if rows := bytes.Count(section, []byte("\n| `")); rows != len(metrics) {
		t.Errorf("%d of %d rows of the table can be read", len(metrics), rows)
	}
	return metrics
}

// described is what the output says of the relay's own metrics.
func described(text string) map[string]string {
	types, labels := map[string]string{}, map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE agent_relay_"); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(rest), " ")
			types["agent_relay_"+name] = kind
			labels["agent_relay_"+name] = map[string]bool{}
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			if of := labels[strings.TrimSuffix(name, suffix)]; of != nil && strings.HasSuffix(name, suffix) {
				for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(rest, -1) {
					if l[1] != "le" {
						of[l[1]] = true
					}
				}
			}
		}
	}
	metrics := map[string]string{}
	for name, kind := range types {
		metrics[name] = fmt.Sprint(kind, slices.Sorted(maps.Keys(labels[name])))
	}
	return metrics
}

// One who waits is counted while it waits, and what it took is not.
func TestMetricsOfThoseWhoWait(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	waiter, worker := r.dial(), r.dial()
	waiter.send(r.render(call{agent: "ben", target: "/messages?wait=30"}))
	r.scrapeUntil("agent_relay_waiting_polls", 1)
	worker.send(r.render(call{agent: "ann", method: http.MethodPost, target: "/v1/pull", body: `{"waitSeconds":30}`}))
	r.scrapeUntil("agent_relay_waiting_polls", 2)
	ann.send(ben, "m1")
	ben.send(ann, "m2")
	waiter.receive(http.MethodGet).want(http.StatusOK, nil)
	worker.receive(http.MethodPost).want(http.StatusOK, nil)
	r.scrapeUntil(`agent_relay_http_requests_total{method="GET",route="/messages",status="200"}`, 1)
	_, series := r.scrapeUntil(`agent_relay_http_requests_total{method="POST",route="/v1/pull",status="200"}`, 1)
	for name, want := range map[string]float64{
		"agent_relay_waiting_polls": 0,
		`agent_relay_http_request_duration_seconds_count{route="/messages"}`: 2, // both sends
		`agent_relay_http_request_duration_seconds_count{route="/v1/pull"}`:  0,
	} {
		if series[name] != want {
			t.Errorf("%s is %v, want %v", name, series[name], want)
		}
	}
}

func TestMetricsAnswer(t *testing.T) {
	r := newRelay(t, setup{})
	get := call{target: "/metrics", unsigned: true, header: []string{"Accept-Encoding: gzip", "Accept: application/openmetrics-text"}}
	a := r.do(get)
	a.want(http.StatusOK, nil)
	for name, want := range map[string]string{
		"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Cache-Control": "no-store",
		"Content-Encoding": "", "Content-Length": strconv.Itoa(len(a.body)),
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	head := r.do(call{method: http.MethodHead, target: "/metrics", unsigned: true})
	if head.want(http.StatusOK, nil); head.body != "" || head.header.Get("Content-Type") != a.header.Get("Content-Type") {
		t.Errorf("HEAD answers %q %v", head.body, head.header)
	}
	for _, c := range []call{
		{agent: "ann", target: "/metrics", signature: "00"}, // ignored
		{target: "/metrics?x=y", unsigned: true},
	} {
		r.do(c).want(http.StatusOK, nil)
	}
	ann := r.agent("ann")
	refused := ann.post("/metrics", "")
	refused.wantError(http.StatusMethodNotAllowed, agentrelay.CodeMethodNotAllowed)
	if got := refused.header.Get("Allow"); got != "GET, HEAD" {
		t.Errorf("Allow is %q", got)
	}
	r.do(call{target: "/metrics", unsigned: true, host: "elsewhere"}).wantError(http.StatusMisdirectedRequest, agentrelay.CodeMisdirected)
	r.do(call{target: "/metrics", unsigned: true, header: []string{"Origin: http://localhost"}}).wantError(http.StatusForbidden, agentrelay.CodeOriginRefused)
	r.do(call{target: "/metrics/", unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
}

// Without metrics the route is as unknown as any other.
func TestNoMetrics(t *testing.T) {
	r := newRelay(t, setup{uncounted: true})
	ann := r.agent("ann")
	for _, target := range []string{"/metrics", "/nothing"} {
		ann.get(target).wantError(http.StatusNotFound, agentrelay.CodeNotFound)
		r.do(call{target: target, unsigned: true}).wantReason(agentrelay.ReasonMissingHeaders)
		r.do(call{method: http.MethodHead, target: target, unsigned: true}).want(http.StatusUnauthorized, nil)
		ann.post(target, "").wantError(http.StatusNotFound, agentrelay.CodeNotFound)
	}
	r.agent("ben").send(ann, "m1") // nobody observes
}

// What the store cannot tell is left out; the log says why.
func TestMetricsOfAStoreThatCannotCount(t *testing.T) {
	var log logLines
	r := newRelay(t, setup{log: log.handler(0)})
	r.store.set(func(s *spy) { s.failStats = errors.New("the cause") })
	_, series := r.scrape()
	if _, there := series["agent_relay_messages_queued"]; there {
		t.Error("a count that failed has a value")
	}
	if _, there := series["agent_relay_messages_delivered_total"]; !there {
		t.Error("what was counted is left out, too")
	}
	if !strings.Contains(log.String(), "the cause") {
		t.Error("the log lacks the cause")
	}
}

// A client cannot make labels.
func TestMetricsHaveFewLabels(t *testing.T) {
	r := newRelay(t, setup{})
	ann := r.agent("ann")
	_, before := r.scrape()
	for i := range 20 {
		name := fmt.Sprint("canary", i)
		r.do(call{agent: name, method: "CANARY" + strconv.Itoa(i), target: "/" + name + "?" + name, signature: "00"})
		ann.get("/" + name)
		ann.post("/messages/"+name+"/ack", "")
		r.do(call{agent: "ann", method: "CANARY" + strconv.Itoa(i), target: "/messages", header: []string{"X-" + name + ": " + name}})
	}
	text, after := r.scrape()
	if strings.Contains(strings.ToLower(text), "canary") {
		t.Error("what a client sent is in the metrics")
	}
	if more := len(after) - len(before); more > 100 {
		t.Errorf("there are %d more series", more)
	}
}

func (s *spy) Stats(ctx context.Context) (store.Stats, error) {
	s.mu.Lock()
	err := s.failStats
	s.mu.Unlock()
	if err != nil {
		return store.Stats{}, err
	}
	return s.Store.Stats(ctx)
}
