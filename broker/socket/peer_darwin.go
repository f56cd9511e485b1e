package socket

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUser is the user who connected, as it was when he did.
func peerUser(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Xucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); failed != nil {
		return 0, failed
	}
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}
