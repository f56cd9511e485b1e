//go:build !windows

package hooks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// openTree looks for the scripts of kind in dir. The caller closes the tree,
// after which only what was found is of use.
func openTree(dir string, kind hook.Kind) *tree {
	t := &tree{path: kindPath(dir, kind)}
	if t.root = t.open(unix.AT_FDCWD, dir, dir); t.root == nil {
		return t
	}
	if t.kind = t.open(int(t.root.Fd()), string(kind), t.path); t.kind == nil {
		return t
	}
	names, err := t.kind.Readdirnames(-1)
	if err != nil {
		t.unreadable = unreadable(t.path, err)
		return t
	}
	slices.Sort(names)
	t.distrusted = t.refusal()
	for _, name := range names {
		t.scripts = append(t.scripts, t.examine(name))
	}
	return t
}

// open opens a directory. nil means that it is missing, or t.unreadable why
// it cannot be opened.
func (t *tree) open(at int, name, path string) *os.File {
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		t.unreadable = unreadable(path, err)
		return nil
	}
	return os.NewFile(uintptr(fd), path)
}

func unreadable(path string, err error) string {
	return fmt.Sprintf("cannot read the hooks directory %s: %v", path, err)
}

// refusal says why nothing in the two directories, as they now are, may run.
func (t *tree) refusal() string {
	for _, dir := range []*os.File{t.root, t.kind} {
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
			return fmt.Sprintf("the directory %s cannot be examined: %v", dir.Name(), err)
		}
		if why := distrust(&st); why != "" {
			return fmt.Sprintf("the directory %s %s", dir.Name(), why)
		}
	}
	return ""
}

// examine says what is to become of a file in the kind's directory, as it now
// is.
func (t *tree) examine(name string) Script {
	skipped := func(why string) Script { return Script{name, Skipped, why} }
	if why := skippedName(name); why != "" {
		return skipped(why)
	}
	var st unix.Stat_t
	_, err := retry(func() (int, error) { return 0, unix.Fstatat(int(t.kind.Fd()), name, &st, 0) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skipped("it is a symbolic link to nothing")
	case err != nil:
		return Script{name, Refused, fmt.Sprintf("it cannot be examined: %v", err)}
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return skipped("it is not a regular file")
	case st.Mode&0o111 == 0:
		return skipped("it has no execute bit")
	}
	if why := distrust(&st); why != "" {
		return Script{name, Refused, "it " + why}
	}
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return Script{name, Refused, fmt.Sprintf("it is setuid or setgid (mode %04o); run chmod ug-s on it", st.Mode&0o7777)}
	}
	return Script{Name: name, Status: Runs}
}

// distrust says why others than root and the relay's user may decide what a
// file holds; "" if they may not.
func distrust(st *unix.Stat_t) string {
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, who is neither root nor the relay's user; make it yours with chown", st.Uid)
	}
	if st.Mode&0o022 != 0 {
		return fmt.Sprintf("is writable by group or others (mode %04o); run chmod go-w on it", st.Mode&0o7777)
	}
	return ""
}

// retry calls f again while a signal interrupts it.
func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
