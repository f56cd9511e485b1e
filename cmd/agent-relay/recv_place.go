package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/agent-relay/agent-relay/client"
)

const (
	// placeTimeout is how long recv waits for another one that is printing.
	placeTimeout = 10 * time.Second
	placeRetry   = 20 * time.Millisecond
)

// keptPlace is a place that outlasts the process, in a file of its own for each
// broker and agent, with a lock file beside it.
type keptPlace struct {
	file    client.ProgressFile
	lock    *flock.Flock
	timeout time.Duration
}

// keptPlace is that of the client's broker and agent. The name tells the agent
// to a person; what follows it tells brokers apart, and agents whose names
// differ in case where file names do not.
func (a *app) keptPlace(c *client.Client) (*keptPlace, error) {
	home, err := stateHome(a.env)
	if err != nil {
		return nil, fmt.Errorf("keep how far recv came: %w; or give --since", err)
	}
	dir := filepath.Join(home, "agent-relay", "recv")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, cannotKeep(err)
	}
	sum := sha256.Sum256([]byte(c.URL() + "\n" + c.Agent()))
	path := filepath.Join(dir, c.Agent()+"-"+hex.EncodeToString(sum[:6])+".json")
	return &keptPlace{client.ProgressFile(path), flock.New(path+".lock", flock.SetPermissions(0o600)), placeTimeout}, nil
}

// reset goes back to the beginning, whatever the file holds.
func (k *keptPlace) reset(ctx context.Context) error {
	return k.locked(ctx, func() error { return k.save(ctx, client.Progress{}) })
}

func (k *keptPlace) update(ctx context.Context, change func(*client.Progress) error) error {
	return k.locked(ctx, func() error {
		kept, err := k.file.Load(ctx)
		if err != nil {
			return err
		}
		p := kept
		if err := change(&p); err != nil || p.Cursor == kept.Cursor && slices.Equal(p.Seen, kept.Seen) {
			return err
		}
		return k.save(ctx, p)
	})
}

func (k *keptPlace) save(ctx context.Context, p client.Progress) error {
	if err := k.file.Save(ctx, p); err != nil {
		return cannotKeep(err)
	}
	return nil
}

func (k *keptPlace) locked(ctx context.Context, do func() error) error {
	if err := k.acquire(ctx); err != nil {
		return err
	}
	return errors.Join(do(), k.lock.Close())
}

func (k *keptPlace) acquire(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	_, err := k.lock.TryLockContext(limited, placeRetry)
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{exitTryAgain, fmt.Errorf("another recv of this agent has been printing for %v; try again when it has ended, or give --since", k.timeout)}
	}
	return cannotKeep(err)
}

func cannotKeep(err error) error {
	return fmt.Errorf("keep how far recv came: %w; set XDG_STATE_HOME to a directory that can be written, or give --since", err)
}
