package setup

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFileSystem(t *testing.T) {
	dir := t.TempDir()
	o := &SelfcheckOptions{DataDir: dir}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	kind := uint32(s.Type)
	before, network := networkFileSystems[kind]
	if c := o.fileSystem(); c.OK == network {
		t.Errorf("network is %v: %+v", network, c)
	}

	// A network cannot be had here, so this file system is taken for one.
	networkFileSystems[kind] = "TestFS"
	t.Cleanup(func() {
		delete(networkFileSystems, kind)
		if network {
			networkFileSystems[kind] = before
		}
	})
	c := o.fileSystem()
	if c.OK || !strings.Contains(c.Detail, dir+" is on TestFS") || !strings.Contains(c.Remedy, "local disk") {
		t.Errorf("got %+v", c)
	}
}
