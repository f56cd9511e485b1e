package setup

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// SelfcheckOptions say which installation to check.
type SelfcheckOptions struct {
	// ConfigPath is the config file. If it could not be read ConfigErr says
	// why, and what follows from it is empty.
	ConfigPath string
	ConfigErr  error
	// DataDir is where messages are kept; empty if they are not.
	DataDir string
	// URL is the broker's address, Secret signs for it.
	URL string
	// CAFile is that of client.Options.
	CAFile string
	Secret string
	// RequireAgentKeys says that Secret is good for no agent.
	RequireAgentKeys bool
	// Version is this program's.
	Version string
	// Command is how to call this program, for remedies.
	Command string
	// Env looks up an environment variable.
	Env func(string) string
	// Timeout is the time limit of each call, and of the round trip. Default
	// 10 s.
	Timeout time.Duration
}

// Check is the result of looking at one thing.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail is what was found.
	Detail string `json:"detail"`
	// Remedy is what to do about a failure.
	Remedy string `json:"remedy,omitempty"`
}

// Report is every check, in the order of Selfcheck.
type Report struct {
	// OK says that all passed.
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// WriteText writes a line for each check.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, c := range r.Checks {
		state := "ok"
		if !c.OK {
			state = "FAIL"
		}
		fmt.Fprintf(&b, "%-4s  %-16s  %s", state, c.Name, c.Detail)
		if c.Remedy != "" {
			b.WriteString("; " + c.Remedy)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) add(name string, c Check) {
	c.Name = name
	c.Detail = oneLine(c.Detail)
	c.Remedy = oneLine(c.Remedy)
	r.Checks = append(r.Checks, c)
	r.OK = r.OK && c.OK
}

func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }

func pass(format string, args ...any) Check {
	return Check{OK: true, Detail: fmt.Sprintf(format, args...)}
}

func fail(remedy, format string, args ...any) Check {
	return Check{Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// The names of the checks, in order.
const (
	checkConfig          = "config"
	checkConfigDirectory = "config-directory"
	checkDataDirectory   = "data-directory"
	checkFileSystem      = "file-system"
	checkPort            = "port"
	checkVersion         = "version"
	checkClock           = "clock"
	checkRoundTrip       = "round-trip"
	checkProxy           = "proxy"
)

// Selfcheck looks at an installation from its files to a message that goes
// there and back. It changes nothing but this: a file is made in the data
// directory and removed, and two agents, selfcheck-a and selfcheck-b, are
// registered, which the broker's list of peers then shows. Nothing stays
// queued for them.
func Selfcheck(ctx context.Context, o SelfcheckOptions) Report {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	r := Report{OK: true}
	if o.ConfigErr != nil {
		r.add(checkConfig, fail("", "%v", o.ConfigErr))
		for _, name := range []string{
			checkConfigDirectory, checkDataDirectory, checkFileSystem,
			checkPort, checkVersion, checkClock, checkRoundTrip, checkProxy,
		} {
			r.add(name, fail("mend the config first", "not checked"))
		}
		return r
	}
	r.add(checkConfig, pass("%s", o.ConfigPath))
	r.add(checkConfigDirectory, o.configDirectory())
	r.add(checkDataDirectory, o.dataDirectory())
	r.add(checkFileSystem, o.fileSystem())
	o.broker(ctx, &r)
	r.add(checkProxy, o.proxy())
	return r
}
