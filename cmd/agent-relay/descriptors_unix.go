//go:build unix

package main

import (
	"math"
	"syscall"
)

// ownDescriptors is how many files the broker and its hooks may have open
// beside connections.
const ownDescriptors = 64

// descriptorsLeft is how many connections the limit on open files leaves room
// for. Where it is not kept, no connection is accepted until one ends.
func descriptorsLeft() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return max(int(l.Cur)-ownDescriptors, 1)
}
