package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	agentrelay "github.com/agent-relay/agent-relay"
)

// Credentials are what an agent needs to call a broker with a key of its own.
type Credentials struct {
	// URL is the broker's address; empty is DefaultURL.
	URL   string
	Agent string
	// Key is the secret of the agent's key.
	Key string
}

// String names the agent without its key.
func (c Credentials) String() string { return "credentials of " + c.Agent }

// GoString is String.
func (c Credentials) GoString() string { return c.String() }

// Options are those of a client that calls with these credentials.
func (c Credentials) Options() Options {
	return Options{URL: c.URL, Agent: c.Agent, Secret: c.Key}
}

// CredentialsFile is where an agent's credentials are kept below the user's
// config directory: that of $XDG_CONFIG_HOME, or ~/.config.
func CredentialsFile(configHome, agent string) string {
	return filepath.Join(configHome, "agent-relay", "agents", agent+".yaml")
}

// LoadCredentials reads the credentials of an agent that `agent-relay agent add
// --credentials` wrote for this user. fs.ErrNotExist if there are none.
func LoadCredentials(agent string) (Credentials, error) {
	if !agentrelay.ValidName(agent) {
		return Credentials{}, fmt.Errorf("%q is no agent name: use 1 to %d of A-Z a-z 0-9 _ . -", agent, agentrelay.MaxNameLength)
	}
	home := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(home) {
		var err error
		if runtime.GOOS == "windows" {
			home, err = os.UserConfigDir()
		} else if home, err = os.UserHomeDir(); err == nil {
			home = filepath.Join(home, ".config")
		}
		if err != nil {
			return Credentials{}, fmt.Errorf("find the credentials of %s: %w", agent, err)
		}
	}
	c, err := ReadCredentials(CredentialsFile(home, agent))
	if err == nil && c.Agent != agent {
		err = fmt.Errorf("%s holds the credentials of %s", CredentialsFile(home, agent), c.Agent)
	}
	if err != nil {
		return Credentials{}, err
	}
	return c, nil
}

// maxCredentials is far more than credentials take.
const maxCredentials = 64 << 10

// ReadCredentials reads a file of credentials: a line each of url, agent and
// key, as YAML has them. One that others than its owner may read or write is
// refused. No error quotes the key.
func ReadCredentials(path string) (Credentials, error) {
	f, err := os.Open(path)
	if err != nil {
		return Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o066 != 0 {
		return Credentials{}, fmt.Errorf("%s holds a key, but its mode %04o lets others read or write it; run: chmod 600 %s, and rotate the key if somebody else may know it", path, mode, path)
	}
	if !info.Mode().IsRegular() {
		return Credentials{}, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err != nil {
		return Credentials{}, fmt.Errorf("read credentials: %w", err)
	}
	if len(text) > maxCredentials {
		return Credentials{}, fmt.Errorf("%s is over %d bytes, more than credentials take", path, maxCredentials)
	}
	c, err := parseCredentials(string(text))
	if err != nil {
		return Credentials{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// parseCredentials reads "name: value" lines. A value is plain, or in double
// quotes as in JSON.
func parseCredentials(text string) (Credentials, error) {
	var c Credentials
	members := map[string]*string{"url": &c.URL, "agent": &c.Agent, "key": &c.Key}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		to := members[name]
		switch value = strings.TrimSpace(value); {
		case !found || to == nil:
			return Credentials{}, fmt.Errorf("line %d: write url, agent and key, each as NAME: VALUE", number)
		case *to != "":
			return Credentials{}, fmt.Errorf("line %d: %s stands there already", number, name)
		case value == "" || value[0] != '"':
			*to = value
		case json.Unmarshal([]byte(value), to) != nil:
			return Credentials{}, fmt.Errorf("line %d: the value of %s is not well quoted", number, name)
		}
	}
	switch {
	case !agentrelay.ValidName(c.Agent):
		return Credentials{}, errors.New("agent is missing, or no agent name")
	case c.Key == "":
		return Credentials{}, errors.New("key is missing")
	}
	return c, nil
}

// Save writes the credentials to a file that its owner alone may read, in the
// place of one that may be there. A directory that is missing is made.
func (c Credentials) Save(path string) error {
	b := []byte("# The key of an agent of agent-relay. Whoever has it can call as this agent.\n")
	for _, member := range []struct{ name, value string }{{"url", c.URL}, {"agent", c.Agent}, {"key", c.Key}} {
		if member.value != "" {
			b = append(agentrelay.AppendString(append(b, member.name+": "...), member.value), '\n')
		}
	}
	if err := replaceFile(path, b); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	return nil
}
