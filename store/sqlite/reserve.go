package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	reserveFile = "relay.reserve"
	// reserveBytes is what is kept for acknowledgements: as much as the log
	// grows before it is begun anew.
	reserveBytes = 4 << 20
	// reserveRetry is how often at most it is tried to have it back.
	reserveRetry = time.Second
	pageBytes    = 4096
)

// reserve is room on the disk that new messages do not get: when the disk is
// full it is given to what ends messages, and new ones are refused until it
// could be had back. Where the size of files is limited (RLIMIT_FSIZE in
// setrlimit(2)), the same is done with the last pages of the database.
//
// The writer alone uses it.
type reserve struct {
	path  string
	clock func() time.Duration
	held  bool
	tried time.Duration
	// limit is the largest size of a file, 0 if there is none.
	limit int64
}

// take has the reserve again, if it can be had.
func (r *reserve) take() bool {
	if r.held {
		return true
	}
	now := r.clock()
	if r.tried != 0 && now-r.tried < reserveRetry {
		return false
	}
	r.tried = now
	if err := allocate(r.path, min(reserveBytes, r.fileLimit())); err != nil {
		_ = os.Remove(r.path)
		return false
	}
	r.held = true
	return true
}

func (r *reserve) fileLimit() int64 {
	if r.limit == 0 {
		return reserveBytes
	}
	return r.limit
}

// release gives the reserve up. It reports whether there was one.
func (r *reserve) release() bool {
	err := os.Remove(r.path)
	held := r.held && (err == nil || errors.Is(err, fs.ErrNotExist))
	r.held, r.tried = false, r.clock()
	return held
}

// pages is how many pages the database may have, with the reserve or without;
// 0 is as many as it likes.
func (r *reserve) pages(last bool) int64 {
	if r.limit == 0 {
		return 0
	}
	n := r.limit / pageBytes
	if !last {
		n -= min(n/4, reserveBytes/pageBytes)
	}
	return max(n, 1)
}

// allocate makes a file that takes up its size on the disk: zeros would not on
// a file system that compresses.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("reserve room on the disk: %w", err)
	}
	block := make([]byte, 1<<16)
	state := uint64(size) | 1
	for i := range block {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		block[i] = byte(state)
	}
	for left := size; left > 0 && err == nil; left -= int64(len(block)) {
		_, err = f.Write(block[:min(left, int64(len(block)))])
	}
	return errors.Join(err, f.Close())
}
