package filesystem

import "golang.org/x/sys/unix"

// Network tells what dir lies on. network names a file system that a
// database should not be on, and is empty for any other.
func Network(dir string) (network string, known bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", false, err
	}
	if s.Flags&unix.MNT_LOCAL != 0 {
		return "", true, nil
	}
	return unix.ByteSliceToString(s.Fstypename[:]), true, nil
}
