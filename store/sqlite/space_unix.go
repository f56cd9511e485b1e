//go:build unix

package sqlite

import "syscall"

// What a system says, beside ENOSPC, that has no room for a user or a file.
var (
	errQuota    error = syscall.EDQUOT
	errFileSize error = syscall.EFBIG
)
