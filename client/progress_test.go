package client

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

func TestProgressFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "too", "progress.json")
	f := ProgressFile(path)
	if p, err := f.Load(t.Context()); err != nil || p.Cursor != "" || p.Seen != nil {
		t.Fatalf("before the first Save: %+v, %v", p, err)
	}
	for _, want := range []Progress{
		{Cursor: "cursor:ab:7", Seen: []string{"a", "b"}},
		{Cursor: "", Seen: []string{`c"<&`}},
	} {
		if err := f.Save(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(t.Context()); err != nil || got.Cursor != want.Cursor || !slices.Equal(got.Seen, want.Seen) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	for path, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
		if runtime.GOOS == "windows" {
			break // its permissions are others
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, want %v; %v", path, info.Mode(), want, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// Whoever has the old file open keeps it whole: the new one takes its place.
func TestProgressFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress.json")
	f := ProgressFile(path)
	if err := f.Save(t.Context(), Progress{Cursor: "old"}); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Save(t.Context(), Progress{Cursor: "new"}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || os.SameFile(before, after) {
		t.Errorf("the file was written in place, %v", err)
	}
}

func TestProgressFileDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress.json")
	for _, text := range []string{"", "not JSON", "null", "{}", "[]", `{"seen":[]}`, `{"cursor":7}`, `{"cursor":"a","seen":"b"}`, `{"cursor":"a","seen":["b`, `{"cursor":"a"}{`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := ProgressFile(path).Load(t.Context()); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it to begin with the oldest message") {
			t.Errorf("%q is read as %+v, %v", text, p, err)
		}
	}
}

func TestProgressFileCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	occupied := filepath.Join(dir, "occupied")
	if err := os.MkdirAll(filepath.Join(occupied, "by"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ProgressFile(occupied).Load(t.Context()); err == nil {
		t.Error("a directory is read")
	}
	for _, path := range []string{occupied, filepath.Join(file, "below"), filepath.Join(file, "below", "that"), filepath.Join(dir, strings.Repeat("x", 300))} {
		if err := ProgressFile(path).Save(t.Context(), Progress{}); err == nil || !strings.Contains(err.Error(), "write the progress file") {
			t.Errorf("%.80s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRecallIsBounded(t *testing.T) {
	r := newRecall(Progress{})
	for i := range 2 * maxRemembered {
		r.add(fmt.Sprint(i))
		r.add(fmt.Sprint(i))
	}
	if len(r.order) != maxRemembered || len(r.seen) != maxRemembered || !r.seen[fmt.Sprint(maxRemembered)] || r.seen["0"] {
		t.Errorf("%d ids in order, %d seen", len(r.order), len(r.seen))
	}
}

func TestRecallOfTooMany(t *testing.T) {
	var p Progress
	for i := range 3 * maxRemembered {
		p.Seen = append(p.Seen, fmt.Sprint(i))
	}
	kept := newRecall(p).progress().Seen
	if len(kept) != maxRemembered || kept[0] != fmt.Sprint(2*maxRemembered) {
		t.Errorf("%d are kept, the first is %s", len(kept), kept[0])
	}
}

func TestProgressRemembers(t *testing.T) {
	messages := func(ids ...string) (list []agentrelay.Message) {
		for _, id := range ids {
			list = append(list, agentrelay.Message{ID: id})
		}
		return list
	}
	p := Progress{Cursor: "c1", Seen: []string{"a", "b"}}
	before := p
	if got := p.Unseen(messages("b", "c", "a", "d")); !slices.EqualFunc(got, messages("c", "d"), func(x, y agentrelay.Message) bool { return x.ID == y.ID }) {
		t.Errorf("unseen are %v", got)
	}
	p.Add(messages("c", "a"))
	if p.Cursor != "c1" || !slices.Equal(p.Seen, []string{"a", "b", "c"}) {
		t.Errorf("%+v", p)
	}
	if !slices.Equal(before.Seen, []string{"a", "b"}) {
		t.Errorf("Add changed a copy: %v", before.Seen)
	}
	var many []string
	for i := range 2 * maxRemembered {
		many = append(many, fmt.Sprint(i))
	}
	p.Add(messages(many...))
	if len(p.Seen) != maxRemembered || p.Seen[0] != fmt.Sprint(maxRemembered) {
		t.Errorf("%d are kept, the first is %s", len(p.Seen), p.Seen[0])
	}
}
