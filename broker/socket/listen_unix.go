//go:build !windows

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/agent-relay/agent-relay/internal/umask"
)

// maxPath is how long the system lets a socket's path be.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - len("\x00")

// answerTimeout is how long somebody who listens may take to show it.
const answerTimeout = time.Second

// bound is a listening socket and its place in the file system.
type bound struct {
	path     string
	lock     *flock.Flock
	listener *net.UnixListener
	// file is the socket as it was made.
	file fs.FileInfo
}

// bind takes the place at path and listens there.
func bind(path string) (b *bound, err error) {
	if path == "" {
		return nil, errors.New("no path is given for the socket")
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("the socket's path %s has %d bytes, and this system allows %d; choose a shorter one", path, len(path), maxPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the socket %s: %w", path, err)
	}
	// Whoever holds the lock may decide about what lies at path. The file
	// stays: if it were removed, two might hold two of that name.
	lock := flock.New(path+".lock", flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW), flock.SetPermissions(0o600))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock the socket %s: %w", path, err)
	case !locked:
		return nil, fmt.Errorf("socket %s: %w", path, ErrInUse)
	}
	b = &bound{path: path, lock: lock}
	if err := b.listen(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return b, nil
}

// listen makes the socket, in the place of a dead one if need be.
func (b *bound) listen() error {
	if err := b.clear(); err != nil {
		return err
	}
	// Made so that nobody else can ever connect to it: the mode is right from
	// the first moment, but for the owner's own execute bit.
	err := umask.Private(func() (err error) {
		b.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: b.path, Net: "unix"})
		return err
	})
	if err != nil {
		return fmt.Errorf("listen on the socket %s: %w", b.path, err)
	}
	// Its name is removed by close, which looks whose it is.
	b.listener.SetUnlinkOnClose(false)
	if b.file, err = os.Lstat(b.path); err == nil {
		err = os.Chmod(b.path, 0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make the socket %s private: %w", b.path, err), b.listener.Close())
	}
	return nil
}

// clear removes a socket on which nobody answers, and nothing else.
func (b *bound) clear() error {
	info, err := os.Lstat(b.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the socket %s: %w", b.path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("socket %s: something else is there (%s); move it away, or choose another socket", b.path, info.Mode())
	}
	conn, err := net.DialTimeout("unix", b.path, answerTimeout)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("socket %s: %w", b.path, ErrInUse), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(b.path); err != nil {
			return fmt.Errorf("remove the dead socket: %w", err)
		}
		return nil
	case errors.Is(err, syscall.EAGAIN):
		// Somebody listens who has much to do.
		return fmt.Errorf("socket %s: %w", b.path, ErrInUse)
	}
	return fmt.Errorf("see whether somebody listens on the socket %s: %w; if nobody does, remove it", b.path, err)
}

// close removes the socket and stops listening. What others have put in its
// place stays.
func (b *bound) close() error {
	// First, while it is open: until then no other file can have its number.
	var errs []error
	if now, err := os.Lstat(b.path); err == nil && os.SameFile(now, b.file) {
		errs = append(errs, os.Remove(b.path))
	}
	return errors.Join(append(errs, b.listener.Close(), b.lock.Close())...)
}
