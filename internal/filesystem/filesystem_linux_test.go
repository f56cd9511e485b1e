package filesystem

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetwork(t *testing.T) {
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	kind := uint32(s.Type)
	before, listed := networks[kind]
	if got, known, err := Network(dir); err != nil || !known || got != before {
		t.Errorf("got %q, %v, %v, want %q", got, known, err, before)
	}
	// A network cannot be had here, so this file system is taken for one.
	networks[kind] = "TestFS"
	t.Cleanup(func() {
		delete(networks, kind)
		if listed {
			networks[kind] = before
		}
	})
	if got, _, err := Network(dir); err != nil || got != "TestFS" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, _, err := Network(dir + "/none"); err == nil {
		t.Error("a directory that is not there lies on something")
	}
}
