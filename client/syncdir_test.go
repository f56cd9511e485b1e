//go:build !windows

package client

import (
	"path/filepath"
	"testing"
)

func TestSyncDir(t *testing.T) {
	if err := syncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := syncDir(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there is made durable")
	}
}
