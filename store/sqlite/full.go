package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	sqlite "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	agentrelay "github.com/agent-relay/agent-relay"
)

// errNoReserve is why a message is refused while what ends messages uses the
// reserve.
var errNoReserve = errors.New("the reserve on the disk is in use")

func storageFull(err error) error {
	return &agentrelay.Error{
		Code:    agentrelay.CodeStorageFull,
		Message: "the broker's disk is full; nothing was stored; free some space and send again",
		Err:     err,
	}
}

func (op *operation) isGrowing() bool { return op.grows }

// refuseSends answers those of a batch that store something new, and returns
// the others.
func (w *writer) refuseSends(batch []*operation, why error) (rest []*operation) {
	full := storageFull(why)
	for _, op := range batch {
		if op.grows {
			op.done <- full
		} else {
			rest = append(rest, op)
		}
	}
	return rest
}

// isFull reports whether there was no room for a transaction. SQLite takes a
// write beyond the limit on the size of files for a fault of the disk.
func (w *writer) isFull(err error) bool {
	if isFull(err) {
		return true
	}
	var e *sqlite.Error
	if w.reserve.limit == 0 || !errors.As(err, &e) || e.Code() != codes.SQLITE_IOERR_WRITE {
		return false
	}
	// A transaction of the largest batch does not write more than that.
	for _, path := range []string{w.store.path, w.store.path + "-wal"} {
		if info, err := os.Stat(path); err == nil && info.Size() > w.reserve.limit-reserveBytes {
			return true
		}
	}
	return false
}

// regain has the reserve back, if there is room for it.
func (w *writer) regain() bool {
	w.limitPages(false)
	return w.reserve.take()
}

// spend gives the reserve to what is to be written.
func (w *writer) spend() {
	w.reserve.release()
	w.limitPages(true)
	w.recycle()
}

// recycle has the log begun anew, so that its room can be used again. Where that
// fails, the log grows.
func (w *writer) recycle() {
	_, _ = w.conn.ExecContext(context.Background(), `PRAGMA wal_checkpoint(PASSIVE)`)
}

// limitPages keeps the database within the limit on the size of files.
func (w *writer) limitPages(last bool) {
	if n := w.reserve.pages(last); n > 0 {
		_, _ = w.conn.ExecContext(context.Background(), fmt.Sprintf(`PRAGMA max_page_count = %d`, n))
	}
}
