package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-relay/agent-relay/store"
)

// maxConfigBytes is the largest config file that is read.
const maxConfigBytes = 1 << 20

// config is what a config file says, the flags of serve laid over it. The
// client commands read their secret and the broker's address from it too.
type config struct {
	// Listen is HOST:PORT; port 0 means any free one.
	Listen string
	// PublicHosts are further host names under which clients may call.
	PublicHosts []string
	// TLS is how the broker speaks to other machines by itself, BehindProxy
	// that a proxy does it. PublicPrefix is the path that the proxy cuts off.
	TLS          tlsConfig
	BehindProxy  bool
	PublicPrefix string
	// CAFile holds the certificates that the client commands trust, in place of
	// the system's; absolute or empty.
	CAFile string
	// DataDir is absolute. It is not used with storageMemory.
	DataDir string
	Storage string
	// Secret signs the requests of every agent.
	Secret secretText
	// RequireSingleUse refuses requests that could be repeated, since their
	// timestamp has no fraction.
	RequireSingleUse bool
	// RequireAgentKeys makes the secret good for no agent: each needs a key of
	// its own.
	RequireAgentKeys bool
	// MessageTTL is how long after it was accepted a message expires.
	MessageTTL time.Duration
	// Lease is how long a lease lasts that names no time of its own.
	Lease        time.Duration
	MaxAttempts  int
	MaxBodyBytes int64
	// MaxConnections bounds those that are open at a time.
	MaxConnections int
	// MaxQueued and MaxQueuedBytes bound what may wait for one agent.
	MaxQueued      int
	MaxQueuedBytes int64
	// Heartbeat is how long after its last request an agent counts as online.
	Heartbeat      time.Duration
	RateLimit      rateLimitConfig
	Lockout        lockoutConfig
	TrustedProxies []netip.Prefix
	Agents         map[string]agentConfig
	// Metrics says whether GET /metrics is answered. Nil: on a loopback address
	// alone.
	Metrics *bool
	Hooks   hooksConfig
	// Connectors are chat platforms, by their names as peers.
	Connectors map[string]*connectorConfig
	// ControlSocket is absolute, or socketOff, or empty for where controlSocket
	// looks.
	ControlSocket string
	// Log comes from the flags of serve.
	Log logConfig

	// file and lines tell where each key stands, for Validate.
	file  string
	lines map[string]int
}

// rateLimitConfig holds limits a minute: of authenticated requests per agent,
// and of refused ones per address.
type rateLimitConfig struct {
	PerAgent, PerAddress int
}

// lockoutConfig says after how many bad signatures, and for how long, an agent
// is locked out at an address.
type lockoutConfig struct {
	Failures int
	Duration time.Duration
}

// agentConfig is what the config says of one agent. With AllowedTargets nil
// the agent may send to anyone, with none in it to nobody.
type agentConfig struct {
	AllowedTargets []string
}

// The values of storage.
const (
	storageSQLite = "sqlite"
	storageMemory = "memory"
)

// secretText is a secret that does not print: whatever formats it by accident
// shows "(secret)". Where the secret itself is needed, convert to string.
type secretText string

const hiddenSecret = "(secret)"

func (secretText) String() string               { return hiddenSecret }
func (secretText) GoString() string             { return hiddenSecret }
func (secretText) MarshalText() ([]byte, error) { return []byte(hiddenSecret), nil }

// defaultConfig is what an empty file means. It has no secret and so does not
// validate, and its DataDir is empty: loadConfig fills it in.
func defaultConfig() *config {
	return &config{
		Listen:       "127.0.0.1:19121",
		Storage:      storageSQLite,
		MessageTTL:   7 * 24 * time.Hour,
		Lease:        10 * time.Minute,
		MaxAttempts:  3,
		MaxBodyBytes: 1 << 20,
		MaxQueued:    store.DefaultMaxQueued,

		MaxConnections: 1024,

		MaxQueuedBytes: store.DefaultMaxQueuedBytes,
		Heartbeat:      90 * time.Second,
		RateLimit:      rateLimitConfig{PerAgent: 60000, PerAddress: 120},
		Lockout:        lockoutConfig{Failures: 5, Duration: 5 * time.Minute},
		Hooks:          hooksConfig{Timeout: 5 * time.Second, MaxConcurrent: 4, PreMessage: hooksAdvisory},
		lines:          map[string]int{},
	}
}

// loadConfig reads and checks the config file at path. Everything that is
// wrong in it is reported at once, as a *configError; the defaults that depend
// on the environment come from env. A file that others than its owner may read
// or write is refused, since it holds the secret; a missing one is
// fs.ErrNotExist.
func loadConfig(path string, env func(string) string) (*config, error) {
	data, err := readConfigFile(path)
	if err != nil {
		return nil, err
	}
	c, problems := parseConfig(path, data)
	problems = append(problems, c.validate(problems)...)
	if len(problems) > 0 {
		return nil, newConfigError(path, problems)
	}
	if c.DataDir == "" && c.Storage == storageSQLite {
		home, err := dataHome(env)
		if err != nil {
			return nil, fmt.Errorf("data_dir: %w; or set data_dir in %s", err, path)
		}
		c.DataDir = dataDir(home)
	}
	return c, nil
}

// dataDir is where messages are unless the config says otherwise.
func dataDir(home string) string { return filepath.Join(home, "agent-relay") }

// readConfigFile returns the bytes of a private regular file.
func readConfigFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noConfigError(path)
	case err != nil:
		return nil, fmt.Errorf("read the config: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory; name the config file in it", path)
	case !info.Mode().IsRegular():
		// Opening a pipe would wait for its writer.
		return nil, fmt.Errorf("%s is not a regular file; name a config file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the config: %w; run agent-relay as the user who owns it", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read the config: %w", err)
	}
	if err := checkPrivate(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the config %s: %w", path, err)
	}
	if len(data) > maxConfigBytes {
		return nil, fmt.Errorf("%s is over %d bytes, more than a config can be; is it the right file?", path, maxConfigBytes)
	}
	return data, nil
}

// configPath is where the config is: the flag's value, else
// $AGENT_RELAY_CONFIG, else agent-relay/config.yaml in the user's config home.
// The result is absolute.
func configPath(flag string, env func(string) string) (string, error) {
	path := flag
	if path == "" {
		path = env("AGENT_RELAY_CONFIG")
	}
	if path != "" {
		return filepath.Abs(path)
	}
	home, err := configHome(env)
	if err != nil {
		return "", fmt.Errorf("find the config: %w; or name it with --config", err)
	}
	return filepath.Join(home, "agent-relay", "config.yaml"), nil
}

// baseURL is where clients on this machine reach the broker. A wildcard
// address is reached through the loopback of its family; with TLS, the first
// of the public hosts is called.
func (c *config) baseURL() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "http://" + c.Listen // not reached: Listen was validated
	}
	scheme := "http://"
	if c.TLS.used() {
		scheme = "https://"
		if len(c.PublicHosts) > 0 { // a certificate names hosts
			return scheme + net.JoinHostPort(c.PublicHosts[0], port)
		}
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return scheme + net.JoinHostPort(host, port)
}

// noConfigError is the path at which there is no config. It is fs.ErrNotExist.
type noConfigError string

func (e noConfigError) Error() string {
	return fmt.Sprintf("there is no config at %s; make one with `agent-relay setup init`, or name another with --config", string(e))
}

func (noConfigError) Is(target error) bool { return target == fs.ErrNotExist }

// configError is everything that is wrong with a config file, a line each.
type configError struct {
	problems []string
}

func (e *configError) Error() string { return strings.Join(e.problems, "\n") }
