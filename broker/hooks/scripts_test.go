//go:build !windows

package hooks

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// scripts are what the test program does as a hook, by name.
var scripts = map[string]func() int{
	"pass": func() int { return 0 },
	"fail": func() int {
		fmt.Fprintln(os.Stderr, "boom")
		return 7
	},
	// order appends its name to a file.
	"order": func() int {
		f, err := os.OpenFile("order.out", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(err)
		_, err = fmt.Fprintln(f, filepath.Base(os.Args[0]))
		must(err)
		must(f.Close())
		if strings.HasPrefix(os.Args[0], "./03") {
			return 3
		}
		return 0
	},
	// noisy writes a megabyte to standard error.
	"noisy": func() int {
		line := strings.Repeat("x", 99) + "\n"
		for range 1 << 20 / len(line) {
			_, err := os.Stderr.WriteString(line)
			must(err)
		}
		fmt.Fprintln(os.Stderr, "the end")
		return 3
	},
	"unread": func() int { return 4 },
	"echo": func() int {
		payload, err := io.ReadAll(os.Stdin)
		must(err)
		must(os.WriteFile("echo.out", payload, 0o600))
		_, err = os.Stdout.Write(payload)
		must(err)
		_, err = os.Stderr.Write(payload)
		must(err)
		return 0
	},
	"surroundings": surroundings,
	"signal": func() int {
		must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	},
	// gate says that it runs, and waits to be let through.
	"gate": func() int {
		passGate(arg())
		return 0
	},
	// stubborn ignores polite signals and has a child that does so too.
	"stubborn": func() int {
		leaveBehind(nil)
		return stubborn()
	},
	"stubborn-child": stubborn,
	// daemon ends, and leaves a child behind that holds standard error.
	"daemon": func() int {
		leaveBehind(os.Stdin)
		fmt.Fprintln(os.Stderr, "started")
		return 0
	},
	// daemon-child reads all of its input, then writes to standard error, and
	// says that it lived through that.
	"daemon-child": func() int {
		passGate(arg())
		payload, err := io.ReadAll(os.Stdin)
		must(err)
		_, err = os.Stderr.Write(payload)
		must(err)
		must(os.WriteFile("lived.tmp", fmt.Append(nil, len(payload)), 0o600))
		must(os.Rename("lived.tmp", "lived.out"))
		return 0
	},
	// meddle does to its directory what its argument says.
	"meddle": func() int {
		for line := range strings.Lines(arg()) {
			var mode os.FileMode
			var name string
			switch _, err := fmt.Sscanf(line, "chmod %o %s", &mode, &name); {
			case err == nil:
				must(os.Chmod(name, mode))
			default:
				must(os.Remove(strings.TrimSpace(line)))
			}
		}
		return 0
	},
}

func stubborn() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	passGate(arg())
	return 0
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(99)
	}
}

// arg is what the script was told in NAME.arg; a child is told what its parent
// was.
func arg() string {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), "-child")
	text, err := os.ReadFile(name + ".arg")
	must(err)
	return string(text)
}

// leaveBehind starts this program as another script, NAME-child, in the same
// group.
func leaveBehind(stdin io.Reader) {
	self, err := os.Executable()
	must(err)
	must((&exec.Cmd{Path: self, Args: []string{os.Args[0] + "-child"}, Stdin: stdin, Stderr: os.Stderr}).Start())
}

// surroundings writes down what a script is given.
func surroundings() int {
	dir, err := os.Getwd()
	must(err)
	var stat syscall.Stat_t
	must(os.WriteFile("mask.out", nil, 0o666))
	must(syscall.Stat("mask.out", &stat))
	group, err := syscall.Getpgid(0)
	must(err)
	text, err := json.Marshal(map[string]any{
		"args": os.Args, "env": os.Environ(), "dir": dir,
		"mode": stat.Mode & 0o777, "leads": group == os.Getpid(), "open": openFiles(),
	})
	must(err)
	must(os.WriteFile("surroundings.out", text, 0o600))
	return 0
}

// openFiles lists what the descriptors of this process lead to, but for those
// that the Go runtime opens for itself.
func openFiles() (open []string) {
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		return nil // there is no such thing here
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(fds, e.Name()))
		if err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/") {
			kind, _, _ := strings.Cut(to, ":")
			open = append(open, e.Name()+" "+kind)
		}
	}
	return open
}

func passGate(path string) {
	f, err := os.OpenFile(path+".there", os.O_WRONLY, 0)
	must(err)
	_, err = f.WriteString("x")
	must(err)
	_, err = os.ReadFile(path + ".go")
	must(err)
	runtime.KeepAlive(f)
}
