package main

import (
	"path/filepath"
	"strings"
	"time"
)

// hooksConfig says which scripts run when something happens. Dir and Socket are
// absolute, or empty for where hooksDir and hookSocket look.
type hooksConfig struct {
	Dir, Socket   string
	Timeout       time.Duration
	MaxConcurrent int
	PreMessage    string
}

// The values of hooks.pre_message.
const (
	hooksAdvisory = "advisory"
	hooksEnforce  = "enforce"
)

const (
	minHookTimeout = 100 * time.Millisecond
	maxHookTimeout = time.Minute
	// maxEnforced leaves a send time to be stored: a client gives it 10 s.
	maxEnforced        = 8 * time.Second
	maxHooksConcurrent = 64
)

func (h *hooksConfig) fields() fields {
	return fields{
		"dir":            text(&h.Dir),
		"socket":         text(&h.Socket),
		"timeout":        duration(&h.Timeout),
		"max_concurrent": integer(&h.MaxConcurrent),
		"pre_message":    text(&h.PreMessage),
	}
}

func (v *validation) hooks() {
	h := &v.c.Hooks
	if h.Dir != "" && !filepath.IsAbs(h.Dir) {
		v.add("hooks.dir", "must be an absolute path; ~ and variables are not expanded here")
	}
	v.socket("hooks.socket", h.Socket)
	v.duration("hooks.timeout", h.Timeout, minHookTimeout, maxHookTimeout)
	v.number("hooks.max_concurrent", int64(h.MaxConcurrent), 1, maxHooksConcurrent)
	switch h.PreMessage {
	case hooksAdvisory:
	case hooksEnforce:
		if h.Timeout > maxEnforced {
			v.add("hooks.timeout", "must be at most "+short(maxEnforced)+" with pre_message: enforce, since a message is answered within that time")
		}
	default:
		v.add("hooks.pre_message", "must be advisory or enforce")
	}
}

func (v *validation) socket(key, path string) {
	if path != "" && path != socketOff && !filepath.IsAbs(path) {
		v.add(key, "must be an absolute path, or off")
	}
}

// socketOff stands for no socket.
const socketOff = "off"

// hooksDir is where the scripts are. A service may have no home; then they are
// beside its config.
func (c *config) hooksDir(env func(string) string) (string, error) {
	if dir := firstOf(c.Hooks.Dir, env("AGENT_RELAY_HOOKS_DIR"), env("DEPUTYOS_HOOKS_DIR")); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := configHome(env)
	if err != nil {
		return filepath.Abs(filepath.Join(filepath.Dir(c.file), "hooks.d"))
	}
	return filepath.Join(home, "agent-relay", "hooks.d"), nil
}

// hookSocket is where hooks are fired; empty is nowhere.
func (c *config) hookSocket(env func(string) string, dataDir string) (string, error) {
	given := firstOf(c.Hooks.Socket, env("AGENT_RELAY_HOOK_SOCKET"), env("DEPUTYOS_RELAY_SOCKET"))
	return socketPath(given, "hooks.sock", env, dataDir)
}

// socketPath is the path of a socket: what is given, or else name in the
// directory that the system has for such things, or else below dataDir.
func socketPath(given, name string, env func(string) string, dataDir string) (string, error) {
	switch {
	case given == socketOff:
		return "", nil
	case given != "":
		return filepath.Abs(given)
	}
	// systemd may name several directories (systemd.exec(5)).
	if dir, _, _ := strings.Cut(env("RUNTIME_DIRECTORY"), ":"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agent-relay", name), nil
	}
	return filepath.Join(dataDir, "run", name), nil
}
