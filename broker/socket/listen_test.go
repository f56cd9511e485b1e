//go:build !windows

package socket

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gofrs/flock"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func listen(t *testing.T, path string) *Server {
	t.Helper()
	s, err := Listen(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantRefused checks that there is no listening at path, and why.
func wantRefused(t *testing.T, path, why string) error {
	t.Helper()
	s, err := Listen(Options{Path: path})
	if err == nil {
		t.Errorf("listens at %s, want %s", path, why)
		return s.Close()
	}
	if !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want %s", err, why)
	}
	return err
}

func TestModes(t *testing.T) {
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a", "b", "s")
	s := listen(t, path)
	if s.Path() != path {
		t.Errorf("path %s", s.Path())
	}
	for name, want := range map[string]fs.FileMode{
		"a/b/s": fs.ModeSocket | 0o600, "a/b/s.lock": 0o600, "a/b": fs.ModeDir | 0o700, "a": fs.ModeDir | 0o700, "": fs.ModeDir | 0o755,
	} {
		if got := mode(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%q has mode %v, want %v", name, got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if err := listen(t, path).Close(); err != nil { // the lock file is no obstacle
		t.Error(err)
	}
}

// There is no moment in which others might connect.
func TestNeverWide(t *testing.T) {
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	path := filepath.Join(shortDir(t), "s")
	var seen atomic.Int64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			info, err := os.Lstat(path)
			if err != nil {
				continue
			}
			seen.Add(1)
			if info.Mode()&0o077 != 0 {
				t.Errorf("the socket had mode %v", info.Mode())
				return
			}
		}
	}()
	for range 300 {
		s := listen(t, path)
		// Whatever else the machine does, it is looked at.
		for before := seen.Load(); seen.Load() == before && !t.Failed(); {
			runtime.Gosched()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-ended
}

func TestRelativePath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(shortDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	s := listen(t, "@s") // no name in some other space
	defer s.Close()
	if want := filepath.Join(dir, "@s"); s.Path() != want || mode(t, want).Type() != fs.ModeSocket {
		t.Errorf("path %s, want %s", s.Path(), want)
	}
}

// A socket that a killed process left is replaced.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "AGENT_RELAY_TEST_LISTEN="+path)
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(ready); err != nil {
		t.Fatal(err)
	}
	if err := wantRefused(t, path, "somebody listens there already"); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the other process was not killed")
	}
	if mode(t, path).Type() != fs.ModeSocket {
		t.Fatal("no socket was left")
	}
	if err := listen(t, path).Close(); err != nil {
		t.Error(err)
	}
}

// A socket on which somebody else answers stays as it is, lock or no lock.
func TestLiveSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := wantRefused(t, path, "somebody listens there already"); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the live socket is gone: %v", err)
	}
	_ = conn.Close()
}

// Whoever has the lock has the place, also while there is no socket yet.
func TestLockedPlace(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	lock := flock.New(path + ".lock")
	if locked, err := lock.TryLock(); !locked || err != nil {
		t.Fatal(locked, err)
	}
	if err := wantRefused(t, path, "somebody listens there already"); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, path).Close(); err != nil {
		t.Error(err)
	}
}

// A socket whose owner is too busy to accept stays too.
func TestBusySocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var conn net.Conn
		if conn, err = net.Dial("unix", path); err == nil {
			defer conn.Close()
		}
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Skipf("here a busy socket says %v", err)
	}
	if err := wantRefused(t, path, "somebody listens there already"); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	mode(t, path) // it is still there
}

// What is no socket stays.
func TestSomethingElse(t *testing.T) {
	dir := shortDir(t)
	for name, create := range map[string]func(path string) error{
		"file":           func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":      func(path string) error { return os.Mkdir(path, 0o700) },
		"link":           func(path string) error { return os.Symlink("file", path) },
		"link to socket": func(path string) error { return os.Symlink("dead", path) },
		"link to none":   func(path string) error { return os.Symlink("none", path) },
		"fifo":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := create(path); err != nil {
			t.Fatal(err)
		}
		before := mode(t, path)
		wantRefused(t, path, "something else is there ("+before.String()+"); move it away")
		if after := mode(t, path); after != before {
			t.Errorf("%s was %v and is %v", name, before, after)
		}
	}
	path := filepath.Join(dir, "datagrams")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wantRefused(t, path, "see whether somebody listens")
	mode(t, path)
}

func TestPathLimit(t *testing.T) {
	dir := shortDir(t)
	long := func(n int) string { return filepath.Join(dir, strings.Repeat("x", n-len(dir)-1)) }
	if err := listen(t, long(maxPath)).Close(); err != nil {
		t.Error(err)
	}
	wantRefused(t, long(maxPath+1), "has "+strconv.Itoa(maxPath+1)+" bytes, and this system allows "+strconv.Itoa(maxPath)+"; choose a shorter one")
	if _, err := os.Lstat(long(maxPath+1) + ".lock"); err == nil {
		t.Error("a path that cannot be was locked")
	}
}

func TestListenFailures(t *testing.T) {
	dir := shortDir(t)
	wantRefused(t, "", "no path is given")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, filepath.Join(file, "s"), "make the directory of the socket")
	if err := os.Symlink("elsewhere", filepath.Join(dir, "s.lock")); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, filepath.Join(dir, "s"), "lock the socket")
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("a link was followed to lock a file elsewhere")
	}
}

// A failure to listen leaves the place free.
func TestPlaceIsFreedAfterFailure(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, path, "something else is there")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, path).Close(); err != nil {
		t.Error(err)
	}
}

// What others put in the socket's place is not removed at the end.
func TestReplacedSocketStays(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	s := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the other's socket was removed: %v", err)
	} else {
		_ = conn.Close()
	}
	// Removed altogether is no error.
	path += "2"
	s = listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
