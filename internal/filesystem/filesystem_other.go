//go:build !linux && !darwin && !windows

package filesystem

// Network cannot tell on this system.
func Network(string) (network string, known bool, err error) { return "", false, nil }
