package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

const (
	// bodyTimeout is how long a body may take to arrive. With its headers, for
	// which the server gives 5 s, a request then has 30 s.
	bodyTimeout = 25 * time.Second
	// answerTimeout is how long a client may take to read its answer.
	answerTimeout = 30 * time.Second
	// eagerBody is how much memory a declared length alone is given.
	eagerBody = 64 << 10
	// maxDrain and drainTimeout bound what is read and dropped of a body that
	// was refused unread.
	maxDrain     = 8 << 20
	drainTimeout = 2 * time.Second
)

// body is a request's body before it is read.
type body struct {
	from       io.ReadCloser
	limit      int64
	control    *http.ResponseController
	unverified *unverified
	// read says that nothing of it is left on the connection, or that there
	// is no use in reading on.
	read bool
}

// all reads the body. declared is its length, -1 if unknown.
func (b *body) all(declared int64) ([]byte, error) {
	if declared == 0 {
		b.read = true
		return nil, nil
	}
	// A test's recorder knows no deadlines; a connection does.
	_ = b.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	var buffer bytes.Buffer
	if declared > 0 {
		buffer.Grow(int(min(declared, eagerBody)) + bytes.MinRead)
	}
	arrival := b.unverified.begin(b.from, func() { _ = b.control.SetReadDeadline(time.Now()) })
	_, err := buffer.ReadFrom(io.LimitReader(arrival, b.limit+1))
	cut := arrival.end()
	if int64(buffer.Len()) > b.limit {
		return nil, b.tooLarge()
	}
	if err != nil {
		b.read = true
		if cut {
			return nil, errCutOff
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, badRequest("the body did not arrive within %d s", int(bodyTimeout.Seconds()))
		}
		return nil, badRequest("the body could not be read to its end")
	}
	b.read = true
	_ = b.control.SetReadDeadline(time.Time{})
	return buffer.Bytes(), nil
}

func (b *body) tooLarge() error {
	return &agentrelay.Error{
		Code:    agentrelay.CodeBodyTooLarge,
		Message: fmt.Sprintf("the body is larger than the %d bytes this broker takes; send less, or raise max_body_bytes", b.limit),
	}
}

// letAnswerFirst keeps net/http from reading the body before it sends the
// answer.
func (b *body) letAnswerFirst() { _ = b.control.EnableFullDuplex() }

// drain reads and drops what is left. A client that sends all before it reads
// would otherwise have its connection reset and never see the answer.
func (b *body) drain() {
	_ = b.control.SetReadDeadline(time.Now().Add(drainTimeout))
	_, err := io.CopyN(io.Discard, b.from, maxDrain)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}
