//go:build !windows

package umask

import (
	"sync"
	"syscall"
)

var mu sync.Mutex

// Private calls f while nothing that the process makes, and no process that
// it starts, gives rights to anyone but its user. What others of the process
// make meanwhile gets narrower rights too, never wider ones.
func Private(f func() error) error {
	mu.Lock()
	defer mu.Unlock()
	defer syscall.Umask(syscall.Umask(0o077))
	return f()
}
