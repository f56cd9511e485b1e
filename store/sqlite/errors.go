package sqlite

import (
	"errors"

	sqlite "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// primaryCode is SQLite's result code without its extension, 0 for errors
// that are not SQLite's (https://www.sqlite.org/rescode.html).
func primaryCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isFull reports whether there was no room to write.
func isFull(err error) bool { return primaryCode(err) == codes.SQLITE_FULL }

// isBusy reports whether another process held the database for too long.
// Nothing was written then.
func isBusy(err error) bool { return primaryCode(err) == codes.SQLITE_BUSY }

// endsBatch reports whether an error of one operation may have ended the
// transaction, or shows that the file cannot be trusted
// (https://www.sqlite.org/lang_transaction.html, "Response To Errors Within A
// Transaction").
func endsBatch(err error) bool {
	switch primaryCode(err) {
	case codes.SQLITE_FULL, codes.SQLITE_IOERR, codes.SQLITE_NOMEM, codes.SQLITE_CORRUPT,
		codes.SQLITE_NOTADB, codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// errDamaged is what a damaged file leads to, where SQLite does not say so
// itself.
var errDamaged = errors.New("the database is damaged")

// isDamage reports whether an error shows that the file is damaged.
func isDamage(err error) bool {
	code := primaryCode(err)
	return code == codes.SQLITE_CORRUPT || code == codes.SQLITE_NOTADB || errors.Is(err, errDamaged)
}

// translate makes a driver's error one of the protocol's where there is one.
func translate(err error) error {
	if isFull(err) {
		return storageFull(err)
	}
	return err
}
