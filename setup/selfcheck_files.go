package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agent-relay/agent-relay/internal/filesystem"
)

// configDirectory looks for a directory in which somebody else could put
// another config into the place of this one.
func (o *SelfcheckOptions) configDirectory() Check {
	dir := filepath.Dir(o.ConfigPath)
	info, err := os.Stat(dir)
	if err != nil {
		return fail("see that you may read it", "%v", err)
	}
	// In a sticky directory, as /tmp is one, nobody replaces another's files.
	if open := openToOthers(info, 0o022); open != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fail("run: chmod go-w "+ShellQuote(dir), "others may write to %s (mode %04o) and replace the config", dir, info.Mode().Perm())
	}
	return pass("%s", dir)
}

func (o *SelfcheckOptions) dataDirectory() Check {
	if o.DataDir == "" {
		return pass("none: messages are kept in memory")
	}
	info, err := os.Stat(o.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("start the broker, which makes it", "%s does not exist", o.DataDir)
	case err != nil:
		return fail("see that you may read it", "%v", err)
	case !info.IsDir():
		return fail("remove it, or set another data_dir", "%s is no directory", o.DataDir)
	}
	if open := openToOthers(info, 0o077); open != 0 {
		return fail("run: chmod 700 "+ShellQuote(o.DataDir), "others may look into %s (mode %04o)", o.DataDir, info.Mode().Perm())
	}
	if err := tryWriting(o.DataDir); err != nil {
		return fail("see that this user may write there and that the disk is not full", "%v", err)
	}
	return pass("%s", o.DataDir)
}

// tryWriting makes a file durable in dir and removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".selfcheck-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString("selfcheck\n")
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func (o *SelfcheckOptions) fileSystem() Check {
	if o.DataDir == "" {
		return pass("none is used")
	}
	network, known, err := filesystem.Network(o.DataDir)
	switch {
	case err != nil:
		return fail("make the data directory first", "cannot tell what %s lies on: %v", o.DataDir, err)
	case network != "":
		return fail("set data_dir to a directory on a local disk", "%s is on %s: locks and writes there are not safe for a database", o.DataDir, network)
	case !known:
		return pass("this system does not tell whether %s is on a network", o.DataDir)
	}
	return pass("%s is not on a network", o.DataDir)
}
