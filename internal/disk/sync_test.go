//go:build !windows

package disk

import (
	"path/filepath"
	"testing"
)

func TestSyncDir(t *testing.T) {
	if err := SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there is made durable")
	}
}
