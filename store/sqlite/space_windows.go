package sqlite

import "golang.org/x/sys/windows"

// What a system says, beside ENOSPC, that has no room for a user or a file.
var (
	errQuota    error = windows.ERROR_DISK_QUOTA_EXCEEDED
	errFileSize error = windows.ERROR_DISK_FULL
)
