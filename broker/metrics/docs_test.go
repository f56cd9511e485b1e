package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// catalogue is the table of metrics in PROTOCOL.md, and what Go's collectors
// add: labels and type by name.
func catalogue(t *testing.T) (labels map[string][]string, types map[string]string) {
	t.Helper()
	doc, err := os.ReadFile(filepath.FromSlash("../../PROTOCOL.md"))
	if err != nil {
		t.Fatal(err)
	}
	labels, types = map[string][]string{}, map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(agent_relay_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		types[row[1]] = row[2]
		labels[row[1]] = []string{}
		for _, l := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
			labels[row[1]] = append(labels[row[1]], l[1])
		}
	}
	if len(labels) == 0 {
		t.Fatal("PROTOCOL.md has no table of metrics")
	}
	families, err := newTested(nothing).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace) {
			labels[f.GetName()] = nil
		}
	}
	labels["up"] = nil // Prometheus' own
	return labels, types
}

var (
	series  = regexp.MustCompile(`\b(up|(?:agent_relay|go|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher = regexp.MustCompile(`([a-z_]+)\s*=?[=~!]`)
	grouped = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// checkExpression finds what an expression names that does not exist.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	labels, types := catalogue(t)
	allowed := []string{"job", "instance", "le"}
	found := series.FindAllStringSubmatch(expr, -1)
	for _, m := range found {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && types[base] == "histogram" {
				name = base
			}
		}
		of, known := labels[name]
		if strings.HasPrefix(name, "process_") && runtime.GOOS != "linux" {
			known = true // elsewhere there are fewer
		}
		if !known || name == m[1] && types[name] == "histogram" {
			t.Errorf("%s: there is no series %s", where, m[1])
		}
		allowed = append(allowed, of...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(append(of, "job", "instance"), l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if !slices.Contains(allowed, strings.TrimSpace(l)) {
				t.Errorf("%s: nothing in %s has the label %s", where, expr, l)
			}
		}
	}
	if len(found) == 0 {
		t.Errorf("%s: no metric in %q", where, expr)
	}
}

func TestAlerts(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash("../../docs/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q lacks something, or is there twice", r.Alert)
			}
			seen[r.Alert] = true
			checkExpression(t, r.Alert, r.Expr)
		}
	}
	if len(seen) == 0 {
		t.Error("there are no alerts")
	}
}

func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash("../../docs/grafana-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	type source struct{ Type, UID string }
	var board struct {
		Inputs     []struct{ Name, Type, PluginID string } `json:"__inputs"`
		Title, UID string
		Templating struct {
			List []struct {
				Name       string
				Datasource source
				Query      struct{ Query string }
			}
		}
		Panels []struct {
			ID          int
			Type, Title string
			Datasource  source
			Targets     []struct {
				Datasource source
				Expr       string
			}
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Inputs) != 1 || board.Inputs[0].Name != "DS_PROMETHEUS" || board.Inputs[0].Type != "datasource" || board.Inputs[0].PluginID != "prometheus" {
		t.Errorf("the data source is no input: %+v", board.Inputs)
	}
	input := source{"prometheus", "${DS_PROMETHEUS}"}
	for _, v := range board.Templating.List {
		checkExpression(t, "variable "+v.Name, v.Query.Query)
		if v.Datasource != input {
			t.Errorf("variable %s has the data source %v", v.Name, v.Datasource)
		}
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != input {
			t.Errorf("panel %s has %d targets and the data source %v", p.Title, len(p.Targets), p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != input {
				t.Errorf("panel %s has a target with the data source %v", p.Title, target.Datasource)
			}
			checkExpression(t, "panel "+p.Title, target.Expr)
		}
	}
	// Every metric of the relay's own is on the dashboard.
	_, types := catalogue(t)
	for name := range types {
		if !strings.Contains(string(data), name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
