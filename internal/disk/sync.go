//go:build !windows

package disk

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir makes the names in a directory durable: what was made, renamed or
// removed in it survives a crash of the machine. Where the file system has no
// such thing, or the directory may be entered and not read, nothing is done
// and that is no error.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
