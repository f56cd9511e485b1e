// Command agent-relay is the relay's broker, its setup and its command line
// client in one binary.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal asks for a clean end. Before that begins, signals are
		// no longer caught, so a second one ends the process at once.
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it: args are those
// after the program's name, env is in the form of os.Environ, and what it
// returns is the exit status. It ends soon after ctx does.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		env:     lookup(env),
		stdin:   stdin,
		stdout:  stdout,
		stderr:  stderr,
		version: version(),
	}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.report(err)
}

// lookup reads variables from env as os.Getenv does; of several with one name
// the last counts.
func lookup(env []string) func(string) string {
	values := make(map[string]string, len(env))
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			values[name] = value
		}
	}
	return func(name string) string { return values[name] }
}
