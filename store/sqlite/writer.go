package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// maxBatch bounds how many operations share a commit, and with it how long
// one of them waits for the others.
const maxBatch = 256

// operation is one atomic use case that waits for its commit.
type operation struct {
	// do runs inside the transaction. It may run again in another
	// transaction, so it must not keep anything from an earlier run.
	do func(*tx) error
	// grows marks what a full disk may refuse: new messages. Everything else
	// ends or changes what is there and goes on.
	grows bool
	// taken is set by the writer when it begins, or by a caller that gives up
	// before that.
	taken atomic.Bool
	done  chan error
}

// writer is the one connection that writes. A single goroutine commits
// whatever has queued up since its last commit; it waits for no timer.
type writer struct {
	store *Store
	db    *sql.DB
	conn  *sql.Conn
	stmts statements

	mu      sync.Mutex
	queue   []*operation
	closing bool
	wake    chan struct{}

	stopped chan struct{}
	failed  chan struct{}
	failure error // before failed is closed
	// commits is how many there were; the witness says so too.
	commits int64
	reserve reserve
}

func newWriter(s *Store, db *sql.DB, conn *sql.Conn, commits int64) *writer {
	w := &writer{
		store: s, db: db, conn: conn, commits: commits,
		stmts:   statements{prepare: conn.PrepareContext},
		wake:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
		failed:  make(chan struct{}),
		reserve: reserve{path: filepath.Join(filepath.Dir(s.path), reserveFile), clock: s.options.Clock.Elapsed, limit: fileSizeLimit()},
	}
	w.regain()
	go w.run()
	return w
}

// write runs do in a transaction and returns when it is durable. If ctx ends
// before do was begun, nothing is written.
func (s *Store) write(ctx context.Context, do func(*tx) error) error {
	return s.writer.submit(ctx, &operation{do: do, done: make(chan error, 1)})
}

// send is write for operations that store a new message.
func (s *Store) send(ctx context.Context, do func(*tx) error) error {
	return s.writer.submit(ctx, &operation{do: do, grows: true, done: make(chan error, 1)})
}

func (w *writer) submit(ctx context.Context, op *operation) error {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return &agentrelay.Error{Code: agentrelay.CodeBusy, Message: "the broker is shutting down; try again"}
	}
	w.queue = append(w.queue, op)
	w.mu.Unlock()
	w.signal()
	select {
	case err := <-op.done:
		return err
	case <-ctx.Done():
		if op.taken.CompareAndSwap(false, true) {
			return agentrelay.Wrap(ctx.Err())
		}
		return <-op.done
	}
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) run() {
	defer close(w.stopped)
	for range w.wake {
		for {
			w.gather()
			batch, closing := w.next()
			if len(batch) == 0 {
				if closing {
					return
				}
				break
			}
			w.commit(batch)
		}
	}
}

// gather lets callers that are about to queue do so, as long as each turn
// brings some: every one of them is spared a commit of its own. A lone caller
// waits for nobody.
func (w *writer) gather() {
	for queued := -1; ; runtime.Gosched() {
		w.mu.Lock()
		n := len(w.queue)
		w.mu.Unlock()
		if n == queued || n >= maxBatch {
			return
		}
		queued = n
	}
}

// next takes the operations whose callers still wait.
func (w *writer) next() (batch []*operation, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), maxBatch)
	for _, op := range w.queue[:n] {
		if op.taken.CompareAndSwap(false, true) {
			batch = append(batch, op)
		}
	}
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	return batch, w.closing && rest == 0
}

// commit makes a batch durable and answers its callers. A batch that fails
// for lack of space is run again without its sends, which leave a reserve, so
// that what is stored can still be read, acknowledged and removed.
func (w *writer) commit(batch []*operation) {
	began := w.store.options.Clock.Elapsed()
	if !w.reserve.held && slices.ContainsFunc(batch, (*operation).isGrowing) && !w.regain() {
		if batch = w.refuseSends(batch, errNoReserve); len(batch) == 0 {
			return
		}
	}
	t, results, err := w.transaction(batch)
	if w.isFull(err) {
		if batch = w.refuseSends(batch, err); len(batch) == 0 {
			w.recycle()
			return
		}
		if t, results, err = w.transaction(batch); w.isFull(err) {
			w.spend()
			t, results, err = w.transaction(batch)
		}
	}
	if err != nil {
		full := w.isFull(err)
		if !full && !isBusy(err) {
			w.fail(err)
		}
		for _, op := range batch {
			if full {
				op.done <- storageFull(err)
				continue
			}
			op.done <- translate(err)
		}
		return
	}
	if t.changed {
		w.commits++
		if err := w.store.witness.record(w.commits, false); err != nil {
			w.fail(err)
			for _, op := range batch {
				op.done <- err
			}
			return
		}
	}
	if t.shift != 0 {
		w.store.time.move(t.shift)
		if t.shift > 0 {
			w.store.forgetFrom.Store(w.store.time.monotonic() + millis(store.EraseAfter))
		}
	}
	w.store.options.Committed(store.Commit{Operations: len(batch), Took: w.store.options.Clock.Elapsed() - began})
	if len(t.events) > 0 {
		w.store.options.Observe(t.events)
	}
	for i, op := range batch {
		op.done <- results[i]
	}
}

// transaction runs a batch and commits it. err is a fault of the whole batch,
// of which nothing is kept; results are those of its operations.
func (w *writer) transaction(batch []*operation) (t *tx, results []error, err error) {
	t, results, err = w.attempt(batch, false)
	if errors.Is(err, errUnguarded) {
		t, results, err = w.attempt(batch, true)
	}
	return t, results, err
}

func (w *writer) attempt(batch []*operation, guarded bool) (t *tx, results []error, err error) {
	select {
	case <-w.failed:
		return nil, nil, w.failure
	default:
	}
	t = &tx{writer: w, options: w.store.options, instant: w.store.time.now(), expected: len(batch)}
	if err := t.exec(`BEGIN IMMEDIATE`); err != nil {
		return nil, nil, err
	}
	results, err = t.runAll(batch, guarded)
	if t.changed = t.writes > 1; err == nil && t.changed { // more than BEGIN
		err = t.exec(`UPDATE store SET commits = ?`, w.commits+1)
	}
	if err == nil {
		err = t.exec(`COMMIT`)
	}
	if err != nil {
		// SQLite may have rolled back by itself, and then this fails.
		_ = t.exec(`ROLLBACK`)
		return nil, nil, err
	}
	return t, results, nil
}

// fail ends all writing. After a failed commit it is unknown what reached the
// disk, and trying again could report success for what was lost
// (https://www.sqlite.org/atomiccommit.html).
func (w *writer) fail(err error) {
	select {
	case <-w.failed:
	default:
		w.store.note(&err)
		w.failure = err
		close(w.failed)
	}
}

func (w *writer) close() error {
	w.mu.Lock()
	closed := w.closing
	w.closing = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	w.signal()
	<-w.stopped
	w.stmts.close()
	w.reserve.release()
	return errors.Join(w.conn.Close(), w.db.Close())
}
