package sqlite

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// witness is a small file beside the database that says how many commits there
// were. It is written after each commit and before the answer, but not synced:
// after a crash of the machine it may be behind the database, never ahead. A
// database that is behind it has lost what was acknowledged.
//
// It has two slots that are written in turn, so that a write that was cut off
// leaves the one before.
type witness struct {
	file *os.File
	path string
	// seen is what was there when it was opened.
	seen  testimony
	epoch [16]byte
}

const (
	slotSize   = 64
	slotStride = 512
	slotMagic  = "arwitn1\n"
)

// testimony is one slot: of which database, how many commits, and whether the
// store was closed after the last one.
type testimony struct {
	epoch   [16]byte
	commits int64
	clean   bool
}

func (t testimony) encode() []byte {
	b := make([]byte, 0, slotSize)
	b = append(b, slotMagic...)
	b = append(b, t.epoch[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.commits))
	clean := uint64(0)
	if t.clean {
		clean = 1
	}
	b = binary.BigEndian.AppendUint64(b, clean)
	sum := sha256.Sum256(b)
	return append(b, sum[:slotSize-len(b)]...)
}

// decodeSlot reads a slot; ok is false for one that was never written, or not
// to its end.
func decodeSlot(b []byte) (t testimony, ok bool) {
	if len(b) != slotSize || !bytes.HasPrefix(b, []byte(slotMagic)) {
		return testimony{}, false
	}
	copy(t.epoch[:], b[8:24])
	t.commits = int64(binary.BigEndian.Uint64(b[24:32]))
	t.clean = binary.BigEndian.Uint64(b[32:40]) == 1
	return t, bytes.Equal(t.encode(), b)
}

// openWitness reads what the witness says, making it if there is none.
func openWitness(path string) (*witness, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the witness of the database: %w", err)
	}
	w := &witness{file: f, path: path}
	for i := range int64(2) {
		b := make([]byte, slotSize)
		if _, err := f.ReadAt(b, i*slotStride); err != nil && !errors.Is(err, io.EOF) {
			return nil, errors.Join(fmt.Errorf("read the witness of the database: %w", err), f.Close())
		}
		if t, ok := decodeSlot(b); ok && t.commits >= w.seen.commits {
			w.seen = t
		}
	}
	return w, nil
}

// refuseNew refuses to make a new database where there was one.
func (w *witness) refuseNew(path string) error {
	info, err := os.Stat(path)
	gone := errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
	if _, logErr := os.Stat(path + "-wal"); !gone || w.seen.commits == 0 || logErr == nil {
		return nil
	}
	return fmt.Errorf("%s is gone: %s tells of %d commits; put the database back, or a copy with `agent-relay store restore`, or remove %s to begin anew without what it held",
		path, w.path, w.seen.commits, w.path)
}

// confirm refuses a database that is not the one of which the witness tells, or
// is behind it; clean tells whether that one was closed. From now on it counts
// as open.
func (w *witness) confirm(epoch string, commits int64, path string) (clean bool, err error) {
	sum := sha256.Sum256([]byte(epoch))
	copy(w.epoch[:], sum[:])
	const remedy = "put the right database back, or take this one over as it is with `agent-relay store restore`"
	switch {
	case w.seen.commits == 0:
	case w.seen.epoch != w.epoch:
		return false, fmt.Errorf("%s is not the database that was here: another was put into its place; %s", path, remedy)
	case w.seen.commits > commits:
		return false, fmt.Errorf("%s is damaged or an old copy: it has %d commits, and there were %d, so messages that were acknowledged are missing; %s",
			path, commits, w.seen.commits, remedy)
	}
	return w.seen.clean && w.seen.commits == commits, w.record(commits, false)
}

// record notes how many commits there are. Where there is no room, the witness
// stays behind, which refuses nothing that is as it should be.
func (w *witness) record(commits int64, clean bool) error {
	_, err := w.file.WriteAt(testimony{w.epoch, commits, clean}.encode(), commits%2*slotStride)
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, errQuota) && !errors.Is(err, errFileSize) {
		return fmt.Errorf("write the witness of the database: %w", err)
	}
	return nil
}

// close notes that the store was closed well, if it was.
func (w *witness) close(s *Store) error {
	var err error
	if s.writer != nil && s.Err() == nil && !s.health.found() {
		err = w.record(s.writer.commits, true)
	}
	if closed := w.file.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	} else {
		err = nil
	}
	return err
}
