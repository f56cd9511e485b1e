package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// backlogQuery walks the two indexes that hold what is queued and what is
// leased, and nothing else. Messages are numbered in the order in which they
// are accepted, so the oldest one has the least number.
const backlogQuery = `WITH queued AS (SELECT count(*) AS n, min(seq) AS oldest FROM messages WHERE status = 'queued')
	SELECT n, COALESCE((SELECT ts FROM messages WHERE seq = oldest), 0),
		(SELECT count(*) FROM messages WHERE status = 'leased')
	FROM queued`

// Stats counts what is queued and leased, and measures the files.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var stats store.Stats
	var oldest int64
	stmt, err := s.read.get(backlogQuery)
	if err != nil {
		return store.Stats{}, err
	}
	if err := stmt.QueryRowContext(ctx).Scan(&stats.Queued, &oldest, &stats.Leased); err != nil {
		return store.Stats{}, err
	}
	if stats.Queued > 0 {
		stats.OldestQueued = time.UnixMilli(oldest)
	}
	if stats.DatabaseBytes, err = fileSize(s.path); err != nil {
		return store.Stats{}, err
	}
	stats.LogBytes, err = fileSize(s.path + "-wal")
	return stats, err
}

// fileSize is 0 for a file that is not there.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
