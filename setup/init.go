package setup

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agent-relay/agent-relay/internal/disk"
)

// secretBytes is how many random bytes a secret is made of.
const secretBytes = 32

// configTemplate is the file that Init writes, secretMark standing for the
// secret. Its commented keys show the defaults.
//
//go:embed config.yaml
var configTemplate []byte

const secretMark = "@SECRET@"

// InitOptions say what Init makes.
type InitOptions struct {
	// Path is where the config goes.
	Path string
	// Force replaces a config that is there, and with it its secret.
	Force bool
	// Random makes the secret. Default crypto/rand.
	Random io.Reader
}

// Init writes a config with a new secret, mode 0600, and makes the directories
// above it that are missing, mode 0700. A config that is there is kept, unless
// forced, and created is false. After a crash there is either the whole config
// or what was there before.
func Init(o InitOptions) (created bool, err error) {
	if o.Random == nil {
		o.Random = rand.Reader
	}
	path, exists, err := findConfig(o.Path)
	if err != nil || exists && !o.Force {
		return false, err
	}
	content, err := newConfig(o.Random)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, fmt.Errorf("make the config's directory: %w; name another place with --config", err)
	}
	return writeConfig(path, content, o.Force)
}

// findConfig follows a symbolic link, so that writing keeps it, and tells
// whether there is a config.
func findConfig(path string) (real string, exists bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			info, err = os.Stat(path)
		}
	}
	switch {
	case err != nil:
		return "", false, fmt.Errorf("look for a config: %w; remove what is there, or name another place with --config", err)
	case !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s is there and is no file; remove it, or name another place with --config", path)
	}
	return path, true, nil
}

func newConfig(random io.Reader) ([]byte, error) {
	var secret [secretBytes]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	text := hex.AppendEncode(nil, secret[:])
	return bytes.Replace(configTemplate, []byte(secretMark), text, 1), nil
}

// writeConfig puts content at path in one step. Unless it replaces, a config
// that appears there meanwhile is kept.
func writeConfig(path string, content []byte, replace bool) (created bool, err error) {
	// os.CreateTemp makes the file with mode 0600.
	f, err := os.CreateTemp(filepath.Dir(path), ".config-*.tmp")
	if err != nil {
		return false, fmt.Errorf("write the config: %w", err)
	}
	temporary := f.Name()
	defer func() { _ = os.Remove(temporary) }() // gone already, after a rename
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, fmt.Errorf("write the config: %w", err)
	}
	if created, err = place(temporary, path, replace); err != nil {
		return false, fmt.Errorf("write the config: %w", err)
	}
	if err := disk.SyncDir(filepath.Dir(path)); err != nil {
		return created, fmt.Errorf("write the config: %w", err)
	}
	return created, nil
}

// place moves a finished file to path. A link, unlike a rename, fails if
// something is there.
func place(temporary, path string, replace bool) (created bool, err error) {
	if !replace {
		err := os.Link(temporary, path)
		if err == nil {
			return true, nil
		}
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		// This file system has no links.
	}
	err = os.Rename(temporary, path)
	return err == nil, err
}
