//go:build !windows

package umask

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func TestPrivate(t *testing.T) {
	before := syscall.Umask(0o022)
	defer syscall.Umask(before)
	dir, failure := t.TempDir(), errors.New("failed")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := filepath.Join(dir, string(rune('a'+i)))
			err := Private(func() error {
				if err := os.WriteFile(name, nil, 0o666); err != nil {
					t.Error(err)
				}
				return failure
			})
			if !errors.Is(err, failure) {
				t.Errorf("got %v, want what the function returned", err)
			}
			info, err := os.Stat(name)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("made with %v, %v, want 0600", info, err)
			}
		})
	}
	all.Wait()
	if after := syscall.Umask(0o022); after != 0o022 {
		t.Errorf("the mask is %04o afterwards, was 0022", after)
	}
}
