package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/internal/disk"
)

// maxRemembered bounds the ids that Progress remembers.
const maxRemembered = 1000

// Progress is how far an inbox was read: the cursor, and the ids that were
// seen last, oldest first, so that a message that is queued again is not taken
// for a new one.
type Progress struct {
	Cursor string   `json:"cursor"`
	Seen   []string `json:"seen"`
}

// Unseen returns those of messages whose ids are not remembered.
func (p *Progress) Unseen(messages []agentrelay.Message) []agentrelay.Message {
	r := newRecall(*p)
	var unseen []agentrelay.Message
	for _, m := range messages {
		if !r.seen[m.ID] {
			unseen = append(unseen, m)
		}
	}
	return unseen
}

// Add remembers the ids of messages, and no longer those that are too old to
// be among the last 1,000.
func (p *Progress) Add(messages []agentrelay.Message) {
	r := newRecall(*p)
	for _, m := range messages {
		r.add(m.ID)
	}
	p.Seen = r.progress().Seen
}

// ProgressStore keeps Progress between runs.
type ProgressStore interface {
	// Load returns what Save kept last, and the zero value if there is none.
	Load(ctx context.Context) (Progress, error)
	// Save replaces what is kept. It is atomic: after a crash Load returns
	// either the old or the new.
	Save(ctx context.Context, p Progress) error
}

// ProgressFile keeps Progress in a file, which its owner alone may read. One
// reader uses it at a time.
type ProgressFile string

// Load reads the file. One that cannot be read as Progress is an error, not a
// new beginning.
func (f ProgressFile) Load(context.Context) (Progress, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return Progress{}, nil
	}
	if err != nil {
		return Progress{}, fmt.Errorf("read the progress file: %w", err)
	}
	var kept struct {
		Cursor *string  `json:"cursor"`
		Seen   []string `json:"seen"`
	}
	err = json.Unmarshal(data, &kept)
	if err == nil && kept.Cursor == nil {
		err = errors.New("it holds no cursor")
	}
	if err != nil {
		return Progress{}, fmt.Errorf("the progress file %s is damaged (%w); remove it to begin with the oldest message", string(f), err)
	}
	return Progress{Cursor: *kept.Cursor, Seen: kept.Seen}, nil
}

// Save writes a new file and puts it in the old one's place; a directory that
// is missing is made. What it kept survives a crash of the machine.
func (f ProgressFile) Save(_ context.Context, p Progress) error {
	data, err := json.Marshal(p)
	if err == nil {
		err = replaceFile(string(f), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the progress file: %w", err)
	}
	return nil
}

func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return disk.SyncDir(dir)
}

// memory keeps Progress as long as the process runs.
type memory struct{ p Progress }

func (m *memory) Load(context.Context) (Progress, error) { return m.p, nil }

func (m *memory) Save(_ context.Context, p Progress) error {
	m.p = p
	return nil
}

// recall is Progress in a form that is quick to ask.
type recall struct {
	cursor string
	order  []string
	seen   map[string]bool
}

func newRecall(p Progress) *recall {
	r := &recall{cursor: p.Cursor, seen: map[string]bool{}}
	for _, id := range p.Seen {
		r.add(id)
	}
	return r
}

func (r *recall) add(id string) {
	if r.seen[id] {
		return
	}
	r.seen[id] = true
	if r.order = append(r.order, id); len(r.order) > maxRemembered {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *recall) progress() Progress {
	return Progress{Cursor: r.cursor, Seen: slices.Clone(r.order)}
}
