//go:build unix

package sqlite

import (
	"math"
	"os/signal"
	"sync"
	"syscall"
)

// ignoreSizeSignal has writes beyond the limit on the size of files fail,
// instead of ending the process (setrlimit(2), RLIMIT_FSIZE).
var ignoreSizeSignal = sync.OnceFunc(func() { signal.Ignore(syscall.SIGXFSZ) })

// fileSizeLimit is the largest size of a file that this process may write, 0 if
// any.
func fileSizeLimit() int64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil || uint64(l.Cur) >= math.MaxInt64 {
		return 0
	}
	ignoreSizeSignal()
	return int64(l.Cur)
}
