package agentrelay_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	module     = "github.com/agent-relay/agent-relay"
	prometheus = "github.com/prometheus/client_golang/prometheus"
)

// room says what a package may import of this module, and which packages from
// elsewhere it may or may not import. Names within the module are relative to
// it, "." being its root.
type room struct {
	// may lists the module's packages that may be imported; "*" is all.
	may []string
	// only, unless nil, lists the packages from outside the standard library
	// that may be imported.
	only []string
	// never lists packages from anywhere that may not be imported.
	never []string
	// reason is why.
	reason string
}

// rooms has an entry for every package. What lies below a package whose name
// ends in /... shares its entry.
var rooms = map[string]room{
	".": {
		only:   []string{},
		never:  []string{"os", "io", "net", "net/http", "database/sql", "math/rand", "math/rand/v2", "crypto/rand", "log/slog"},
		reason: "the vocabulary is imported by all, so it brings nothing along: no library, no I/O, no randomness",
	},
	"internal/disk": {
		only:   []string{},
		reason: "client, setup and store share it, so it may bring nothing to any of them",
	},
	"internal/filesystem": {
		only:   []string{"golang.org/x/sys/unix", "golang.org/x/sys/windows"},
		reason: "setup and store share it, and may not import each other",
	},
	"internal/hook": {
		may:    []string{"."},
		only:   []string{},
		never:  []string{"os", "net", "net/http", "log/slog"},
		reason: "broker, hooks, sockets and client share it, so it may bring nothing to any of them",
	},
	"internal/umask": {
		only:   []string{},
		reason: "hooks and sockets share it, and may not import each other",
	},
	"migrations": {
		only:   []string{},
		reason: "the schema is data; whoever applies it brings the library",
	},
	"store": {
		may:    []string{"."},
		never:  []string{"database/sql", "net/http"},
		reason: "the contract must fit every driver, so it knows none",
	},
	"store/sqlite": {
		may:    []string{".", "store", "migrations", "internal/disk", "internal/filesystem"},
		never:  []string{"net/http"},
		reason: "a driver fulfils the contract and knows nothing of who uses it",
	},
	"store/storetest": {
		may:    []string{".", "store"},
		reason: "the suite tests what the contract says, so it may see no driver",
	},
	"broker": {
		may:    []string{".", "store", "internal/hook"},
		never:  []string{"net/http", "database/sql", "os"},
		reason: "the rules are the same for every transport and every store, so they name none",
	},
	"broker/httpapi": {
		may:    []string{".", "store", "broker"},
		never:  []string{"database/sql", "os/exec"},
		reason: "a transport translates for the broker; it knows no other transport and no driver",
	},
	"broker/metrics": {
		may: []string{".", "store"},
		only: []string{
			"github.com/prometheus/client_golang/prometheus",
			"github.com/prometheus/client_golang/prometheus/collectors",
			"github.com/prometheus/common/expfmt",
		},
		never:  []string{"net/http", "database/sql"},
		reason: "metrics count what they are told and know neither who tells it nor who asks; nobody else knows Prometheus",
	},
	"broker/hooks": {
		may:    []string{".", "internal/hook", "internal/umask"},
		never:  []string{"net", "net/http", "database/sql"},
		reason: "the dispatcher knows neither messages nor how events reach it",
	},
	"broker/socket": {
		may:    []string{".", "store", "broker", "internal/hook", "internal/umask"},
		never:  []string{"net/http", "database/sql", "os/exec"},
		reason: "a socket passes on what it is asked to the broker and to whoever fires hooks; it runs nothing itself",
	},
	"broker/connector": {
		may:    []string{"."},
		only:   []string{"github.com/coder/websocket"},
		never:  []string{"database/sql", "os/exec"},
		reason: "connectors written in Go build it in, so it brings neither the broker nor a store",
	},
	"broker/bridge": {
		may:    []string{".", "store", "broker", "broker/connector"},
		never:  []string{"database/sql", "net/http", "os", "os/exec"},
		reason: "it joins the rules with the connectors' contract, so that neither knows the other; config and HTTP are for others",
	},
	"client": {
		may:    []string{".", "internal/disk", "internal/hook"},
		only:   []string{"github.com/google/uuid"},
		reason: "agents build the client in; the broker, its store and their libraries are not to come with it",
	},
	"setup": {
		may:    []string{".", "client", "internal/disk", "internal/filesystem"},
		never:  []string{"flag", "github.com/spf13/cobra"},
		reason: "setup works from outside, as any agent does, and leaves flags to the command",
	},
	"cmd/agent-relay": {
		may:    []string{"*"},
		never:  []string{"database/sql", "flag"},
		reason: "the command wires everything, and does nothing itself that a package does",
	},
}

// listed is what `go list` tells of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Deps       []string
}

// goList lists packages as they are built for one system, without tests.
func goList(t *testing.T, system string, args ...string) []listed {
	t.Helper()
	// -e: modules that only other systems need may not have been downloaded.
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,Standard,Deps"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", system, err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// relative is a package's name within the module, and whether it is of it.
func relative(importPath string) (name string, ours bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// Every package imports only what its room allows, on every system.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, p := range goList(t, system, "./...") {
			name, _ := relative(p.ImportPath)
			seen[name] = true
			r, ok := rooms[name]
			if !ok {
				t.Errorf("package %s has no entry in rooms: say what it may import, and why", name)
				continue
			}
			for _, imported := range p.Imports {
				if !r.allows(imported) {
					t.Errorf("%s imports %s, on %s: %s", name, imported, system, r.reason)
				}
			}
		}
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("rooms has an entry for %s, and there is no such package", name)
		}
	}
}

func (r room) allows(imported string) bool {
	if slices.Contains(r.never, imported) {
		return false
	}
	if name, ours := relative(imported); ours {
		return slices.Contains(r.may, "*") || slices.Contains(r.may, name)
	}
	// The standard library's paths begin with a word that has no dot.
	first, _, _ := strings.Cut(imported, "/")
	return r.only == nil || !strings.Contains(first, ".") || slices.Contains(r.only, imported)
}

// What a room must not know does not come in by way of another package either.
func TestIndirectImports(t *testing.T) {
	for _, rule := range []struct{ from, never, reason string }{
		{".", "net", "the vocabulary does no I/O"},
		{"client", module + "/broker", "agents build the client in, and not the broker"},
		{"client", module + "/store", "agents build the client in, and not the store"},
		{"client", "database/sql", "agents build the client in, and no database"},
		{"setup", module + "/broker", "setup works from outside, as any agent does"},
		{"setup", module + "/store", "setup works from outside, as any agent does"},
		{"broker", "database/sql", "the rules are the same for every store"},
		{"broker/httpapi", "database/sql", "a transport reaches a store through the broker alone"},
		{"broker", prometheus, "the rules are the same whoever counts"},
		{"broker/httpapi", prometheus, "a transport tells what it does and leaves counting to others"},
		{"store/sqlite", prometheus, "a driver tells what it does and leaves counting to others"},
		{"client", prometheus, "agents build the client in, and not what counts for the broker"},
	} {
		for _, p := range goList(t, "linux", path.Join(module, rule.from)) {
			if slices.Contains(p.Deps, rule.never) {
				t.Errorf("%s imports %s indirectly: %s", rule.from, rule.never, rule.reason)
			}
		}
	}
}

// Nothing is built with cgo, so that one static binary serves every machine of
// a kind.
func TestNoCgo(t *testing.T) {
	for _, p := range goList(t, "linux", "-deps", "./...") {
		if !p.Standard && slices.Contains(p.Imports, "C") {
			t.Errorf("%s uses cgo: the program must build without a C compiler", p.ImportPath)
		}
	}
}

// A folder is named after what it is about. These names are about nothing, and
// so end up holding anything.
func TestFolderNames(t *testing.T) {
	for _, p := range goList(t, "linux", "./...") {
		switch path.Base(p.ImportPath) {
		case "util", "utils", "common", "helpers", "types", "models", "misc", "shared":
			t.Errorf("package %s: name it after what it does, or put its parts where they are used", p.ImportPath)
		}
	}
}
