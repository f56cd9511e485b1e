package socket

import (
	"errors"
	"fmt"
	"net"
)

// bound does not exist here: Windows has Unix sockets, but neither their modes
// nor a way to know who connects.
type bound struct {
	path     string
	listener *net.UnixListener
}

func bind(path string) (*bound, error) {
	return nil, fmt.Errorf("socket %s: %w on Windows", path, errors.ErrUnsupported)
}

func (*bound) close() error { return nil }

func peerUser(*net.UnixConn) (uint32, error) { return 0, errors.ErrUnsupported }
