package connector

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrBadFrame is wrapped by the errors for frames that were skipped. They end
// nothing.
var ErrBadFrame = errors.New("bad frame")

var (
	errTooLarge   = fmt.Errorf("%w: it is larger than 1 MiB", ErrBadFrame)
	errNoFrame    = fmt.Errorf("%w: it is not one JSON object", ErrBadFrame)
	errNoUTF8     = fmt.Errorf("%w: it is not UTF-8", ErrBadFrame)
	errUnfinished = fmt.Errorf("%w: its rest never came", ErrBadFrame)
)

// FrameReader cuts messages into frames. A frame ends with a newline, or with
// the message in which its object is complete; it may come in as many messages
// as the peer likes, and be cut anywhere, also within a character. Blank lines
// are skipped. The zero value is ready. It holds at most one frame.
//
// What is not one JSON object in UTF-8 of at most MaxFrame bytes is skipped up
// to the next newline, or to the end of the message in which that shows. Is it
// the rest of a frame begun in an earlier message that cannot follow, then that
// frame was broken off, and the message is read by itself.
type FrameReader struct {
	line []byte
	// size is the length of the line, also of what is not kept of it.
	size int
	// message is where in line the present message began.
	message int
	scan    scanner
}

// Feed reads the next part of a message; last says that the message ends with
// it. It calls emit for each frame, which then belongs to the callee, and for
// each that is skipped with an error that wraps ErrBadFrame.
func (r *FrameReader) Feed(part []byte, last bool, emit func(frame []byte, err error)) {
	for {
		end := bytes.IndexByte(part, '\n')
		if end < 0 {
			break
		}
		r.add(part[:end])
		r.endLine(emit)
		part = part[end+1:]
	}
	r.add(part)
	if last {
		r.endMessage(emit)
	}
}

// add takes a part of a line.
func (r *FrameReader) add(part []byte) {
	if r.size == 0 {
		part = bytes.TrimLeft(part, " \t\r")
	}
	r.size += len(part)
	r.scan.feed(part)
	// A line that is too large is followed to its end, but not kept.
	r.line = append(r.line, part[:min(len(part), MaxFrame+maxAround-len(r.line))]...)
}

// maxAround is how many bytes of space after a frame are borne with.
const maxAround = 16

// endLine ends a frame at a newline.
func (r *FrameReader) endLine(emit func([]byte, error)) {
	switch {
	case r.size == 0:
	case r.scan.state == complete:
		emit(r.take())
	case r.brokenOff():
		emit(nil, errUnfinished)
		r.again()
		r.endLine(emit)
	default:
		r.begin()
		emit(nil, errNoFrame)
	}
	r.message = 0
}

// endMessage ends a frame that needs no more, and one that nothing can help.
func (r *FrameReader) endMessage(emit func([]byte, error)) {
	switch {
	case r.size == 0:
	case r.scan.state == complete:
		emit(r.take())
	case r.brokenOff():
		emit(nil, errUnfinished)
		r.again()
		r.endMessage(emit)
		return
	case r.scan.state == impossible:
		r.begin()
		emit(nil, errNoFrame)
	}
	r.message = len(r.line)
}

// brokenOff tells whether this message cannot continue what an earlier one
// began, and is still there as a whole.
func (r *FrameReader) brokenOff() bool {
	return r.scan.state == impossible && r.message > 0 && r.size == len(r.line)
}

// begin starts a line.
func (r *FrameReader) begin() { *r = FrameReader{scan: scanner{open: r.scan.open[:0]}} }

// again starts a line with what the present message has of this one.
func (r *FrameReader) again() {
	rest := r.line[r.message:]
	r.begin()
	r.add(rest)
}

// take ends a line that holds an object.
func (r *FrameReader) take() ([]byte, error) {
	frame := bytes.Trim(r.line, " \t\r")
	tooLarge := r.size > len(r.line) || len(frame) > MaxFrame
	r.begin()
	switch {
	case tooLarge:
		return nil, errTooLarge
	case !utf8.Valid(frame):
		return nil, errNoUTF8
	}
	return frame, nil
}
