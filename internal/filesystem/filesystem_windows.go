package filesystem

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// Network tells what dir lies on. network names a file system that a
// database should not be on, and is empty for any other.
func Network(dir string) (network string, known bool, err error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return "", false, err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", true, nil
	}
	return "", true, nil
}
