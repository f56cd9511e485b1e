package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	agentrelay "github.com/agent-relay/agent-relay"
)

// minSecretLength is the shortest secret that is accepted, in characters.
const minSecretLength = 32

const badName = "must be an agent name: 1 to 64 of A-Z a-z 0-9 _ . -"

// The ranges of numbers and times, both ends included.
const (
	minMessageTTL = time.Second
	maxMessageTTL = 366 * 24 * time.Hour

	minLease = agentrelay.MinLeaseSeconds * time.Second
	maxLease = agentrelay.MaxLeaseSeconds * time.Second

	minHeartbeat = time.Second
	maxHeartbeat = 24 * time.Hour

	minLockout = time.Second
	maxLockout = 24 * time.Hour

	minBodyBytes = 1 << 10
	maxBodyBytes = 64 << 20

	maxConnectionsLimit = 1_000_000
	maxQueuedLimit      = 100_000_000
	maxQueuedBytes      = 1<<31 - 1

	maxAttemptsLimit = 1000
	maxRate          = 100_000_000
	maxFailures      = 1000
)

// validation collects what the values of a config break.
type validation struct {
	c *config
	// known are problems of keys that could not be read: their values are
	// defaults, and not to be complained of as well.
	known map[string]bool
	found []problem
}

// validate checks what the values mean and returns what is wrong, except for
// keys that already have a problem.
func (c *config) validate(already []problem) []problem {
	v := &validation{c: c, known: map[string]bool{}}
	for _, p := range already {
		v.known[p.key] = true
	}
	// A file that could not be read at all has no keys, but is not without.
	if len(c.lines) > 0 || len(already) == 0 {
		v.secret()
	}
	v.network()
	v.storage()
	v.limits()
	v.agents()
	v.hooks()
	v.connectors()
	v.control()
	v.exposure()
	return v.found
}

func (v *validation) add(key, text string) {
	if v.known[key] {
		return
	}
	line := v.c.lines[key]
	if line == 0 {
		line = 1
	}
	v.found = append(v.found, problem{line: line, key: key, text: text})
}

func (v *validation) secret() {
	s := string(v.c.Secret)
	switch {
	case s == "":
		v.add("secret", "is missing; put 64 random hexadecimal digits here, or make a new config with `agent-relay setup init --force`")
	case utf8.RuneCountInString(s) < minSecretLength:
		v.add("secret", fmt.Sprintf("must be at least %d characters; make one with: openssl rand -hex 32", minSecretLength))
	case strings.ContainsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
		v.add("secret", "must not hold spaces or line breaks; remove them")
	}
}

func (v *validation) network() {
	if !validListen(v.c.Listen) {
		v.add("listen", "must be HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:19121 or [::1]:19121")
	}
	for i, host := range v.c.PublicHosts {
		if !validHost(host) {
			v.add(item("public_hosts", i), "must be a host name or address alone, without scheme or port, such as relay.example.org")
		}
	}
}

func validListen(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || len(port) > 5 || strings.Trim(port, "0123456789") != "" || port == "" {
		return false
	}
	n, err := strconv.Atoi(port)
	if err != nil || n > 65535 {
		return false
	}
	return host == "" || validHost(host)
}

// validHost accepts an IP address or a host name (RFC 1123 section 2.1, and
// underscores, which names in containers have).
func validHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range label {
			if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}

func (v *validation) storage() {
	if v.c.Storage != storageSQLite && v.c.Storage != storageMemory {
		v.add("storage", "must be sqlite or memory")
	}
	if v.c.DataDir != "" && !filepath.IsAbs(v.c.DataDir) {
		v.add("data_dir", "must be an absolute path; ~ and variables are not expanded here")
	}
}

func (v *validation) limits() {
	c := v.c
	v.duration("message_ttl", c.MessageTTL, minMessageTTL, maxMessageTTL)
	v.duration("lease", c.Lease, minLease, maxLease)
	v.duration("heartbeat", c.Heartbeat, minHeartbeat, maxHeartbeat)
	v.duration("lockout.duration", c.Lockout.Duration, minLockout, maxLockout)
	v.number("max_attempts", int64(c.MaxAttempts), 1, maxAttemptsLimit)
	v.number("max_body_bytes", c.MaxBodyBytes, minBodyBytes, maxBodyBytes)
	v.number("max_connections", int64(c.MaxConnections), 16, maxConnectionsLimit)
	v.number("max_queued", int64(c.MaxQueued), 1, maxQueuedLimit)
	v.number("max_queued_bytes", c.MaxQueuedBytes, minBodyBytes, maxQueuedBytes)
	if c.MaxQueuedBytes >= minBodyBytes && c.MaxQueuedBytes < min(c.MaxBodyBytes, maxBodyBytes) {
		v.add("max_queued_bytes", "must not be less than max_body_bytes, or a message could be too large for every inbox")
	}
	v.number("rate_limit.per_agent", int64(c.RateLimit.PerAgent), 1, maxRate)
	v.number("rate_limit.per_address", int64(c.RateLimit.PerAddress), 1, maxRate)
	v.number("lockout.failures", int64(c.Lockout.Failures), 1, maxFailures)
}

func (v *validation) duration(key string, d, low, high time.Duration) {
	if d < low || d > high {
		v.add(key, fmt.Sprintf("must be from %s to %s", short(low), short(high)))
	}
}

// short writes a duration of whole hours or seconds without empty units.
func short(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return d.String()
}

func (v *validation) number(key string, n, low, high int64) {
	if n < low || n > high {
		v.add(key, fmt.Sprintf("must be from %d to %d", low, high))
	}
}

func (v *validation) agents() {
	for _, name := range slices.Sorted(maps.Keys(v.c.Agents)) {
		targets := v.c.Agents[name].AllowedTargets
		for i, target := range targets {
			key := item("agents."+name+".allowed_targets", i)
			switch {
			case !agentrelay.ValidName(target):
				v.add(key, badName)
			case slices.Contains(targets[:i], target):
				v.add(key, "stands in this list already; remove it")
			}
		}
	}
}

func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// readProxies reads trusted_proxies: addresses, or networks in CIDR form.
func (c *config) readProxies(r *configReader, path string, n ast.Node) {
	c.TrustedProxies = nil
	for i, s := range r.textsOf(path, n) {
		prefix, err := netip.ParsePrefix(s)
		if addr, addrErr := netip.ParseAddr(s); addrErr == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil {
			at := item(path, i)
			r.problems = append(r.problems, problem{line: r.lines[at], key: at, text: "must be an address or a network, such as 10.0.0.7 or 10.0.0.0/8"})
			continue
		}
		c.TrustedProxies = append(c.TrustedProxies, prefix.Masked())
	}
}

// readAgents reads agents. An agent with nothing below it has no restriction.
func (c *config) readAgents(r *configReader, path string, n ast.Node) {
	c.Agents = map[string]agentConfig{}
	r.each(path, n, func(name, at string, nameNode, value ast.Node) {
		if !agentrelay.ValidName(name) {
			r.add(nameNode, showKey(path, name), badName)
			return
		}
		var agent agentConfig
		if value.Type() != ast.NullType {
			r.each(at, value, func(key, keyAt string, keyNode, value ast.Node) {
				if key != "allowed_targets" {
					r.add(keyNode, showKey(at, key), "there is no such key; the keys here are allowed_targets")
					return
				}
				agent.AllowedTargets = r.allowedTargets(keyAt, value)
			})
		}
		c.Agents[name] = agent
	})
}

// allowedTargets refuses to guess: a list whose entries were all commented out
// could mean anyone or nobody.
func (r *configReader) allowedTargets(path string, n ast.Node) []string {
	if n.Type() == ast.NullType {
		r.add(n, path, "is empty; write [] if this agent may send to nobody, or remove the key if to anyone")
		return nil
	}
	return r.textsOf(path, n)
}
