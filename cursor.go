package agentrelay

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Cursor marks a place in one agent's inbox. To clients it is opaque text.
type Cursor struct {
	// Tag ties the cursor to one store and one agent; see CursorTag.
	Tag string
	// Position is that of the last message seen; 0 is before the first.
	Position int64
}

// CursorTag derives the tag of an agent's cursors from the store's epoch, so
// that a cursor of another agent, or of a database that was replaced, is
// noticed.
func CursorTag(epoch, agent string) string {
	sum := sha256.Sum256([]byte(epoch + "\n" + agent))
	return hex.EncodeToString(sum[:6])
}

// String is the cursor's text, cursor:<tag>:<position>.
func (c Cursor) String() string {
	return cursorPrefix + c.Tag + ":" + strconv.FormatInt(c.Position, 10)
}

// ParseCursor reads a cursor's text. ok is false for anything that String did
// not write.
func ParseCursor(text string) (c Cursor, ok bool) {
	rest, found := strings.CutPrefix(text, cursorPrefix)
	if !found {
		return Cursor{}, false
	}
	tag, digits, found := strings.Cut(rest, ":")
	if !found || tag == "" || !allDigits(digits) {
		return Cursor{}, false
	}
	position, err := strconv.ParseInt(digits, 10, 64)
	c = Cursor{Tag: tag, Position: position}
	return c, err == nil && c.String() == text
}
