package hooks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// Status says what becomes of a file in a kind's directory.
type Status string

// The statuses.
const (
	Runs    Status = "runs"
	Skipped Status = "skipped"
	Refused Status = "refused"
)

// Script is a file in a kind's directory.
type Script struct {
	Name   string
	Status Status
	// Why is it skipped or refused, and what to do about the latter.
	Why string
}

// tree is hooks.d and a kind's directory in it, both open, as far as they
// exist.
type tree struct {
	path       string
	root, kind *os.File
	// unreadable is why the scripts are not known.
	unreadable string
	// distrusted is why none of them may run.
	distrusted string
	scripts    []Script
}

// problem is why no script of the tree runs, if there are any. A directory
// that is refused and holds nothing to run is none.
func (t *tree) problem() string {
	if t.unreadable != "" {
		return t.unreadable
	}
	if t.distrusted != "" && slices.ContainsFunc(t.scripts, func(s Script) bool { return s.Status != Skipped }) {
		return refused(t.distrusted)
	}
	return ""
}

// runs tells whether there is a script to run.
func (t *tree) runs() bool {
	return t.problem() == "" && slices.ContainsFunc(t.scripts, func(s Script) bool { return s.Status == Runs })
}

// failures are those of an event of which nothing runs.
func (t *tree) failures() []hook.Failure {
	if problem := t.problem(); problem != "" {
		return []hook.Failure{{Script: hook.NoScript, Reason: problem}}
	}
	var all []hook.Failure
	for _, s := range t.scripts {
		if s.Status == Refused {
			all = append(all, hook.Failure{Script: s.Name, Reason: refused(s.Why)})
		}
	}
	return all
}

func (t *tree) close() {
	for _, f := range []*os.File{t.root, t.kind} {
		if f != nil {
			_ = f.Close() // it was only read
		}
	}
}

// skippedName says why a file of this name is never run; "" if it may be.
func skippedName(name string) string {
	switch {
	case strings.HasPrefix(name, "."):
		return "its name begins with a dot"
	case strings.HasSuffix(name, "~"):
		return "its name ends in ~"
	case strings.HasSuffix(name, ".disabled"):
		return "its name ends in .disabled"
	}
	return ""
}

// Listing is what is in hooks.d.
type Listing struct {
	Dir   string
	Kinds []KindListing
	// Unknown are the names in hooks.d that are no kind's, sorted, but for
	// dot files.
	Unknown []string
}

// KindListing is what is in a kind's directory.
type KindListing struct {
	Kind hook.Kind
	Dir  string
	// Problem, unless empty, is why nothing of it runs.
	Problem string
	// Scripts are its files in lexical order.
	Scripts []Script
}

// List looks at all that is installed, and runs nothing.
func (d *Dispatcher) List() Listing {
	l := Listing{Dir: d.o.Dir}
	for _, kind := range hook.Kinds() {
		t := openTree(d.o.Dir, kind)
		t.close()
		k := KindListing{Kind: kind, Dir: t.path, Problem: t.unreadable, Scripts: t.scripts}
		if k.Problem == "" && t.distrusted != "" {
			k.Problem = refused(t.distrusted)
		}
		l.Kinds = append(l.Kinds, k)
	}
	// That it cannot be read, each kind says.
	entries, _ := os.ReadDir(d.o.Dir)
	for _, e := range entries {
		if name := e.Name(); hook.Kind(name).Err() != nil && !strings.HasPrefix(name, ".") {
			l.Unknown = append(l.Unknown, name)
		}
	}
	return l
}

func kindPath(dir string, kind hook.Kind) string { return filepath.Join(dir, string(kind)) }
