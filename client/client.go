// Package client speaks the relay's protocol 1.0 to a broker.
//
// Each method that bears the name of a call makes that call, under a time limit
// of its own. Where that may help, it is tried again after a pause, with the
// same message id; a refusal because of the clock is answered once by signing
// with the broker's. What the broker refuses comes back as
// *agentrelay.Error, so that errors.Is(err, agentrelay.ErrNoSuchAgent) tells
// what happened. Where no broker answers the error is ErrUnreachable, and
// where something else does, ErrNotRelay: the broker signs its answers, and one
// that is not signed counts as not received.
package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

const (
	// DefaultURL is where a broker listens unless it is told otherwise.
	DefaultURL = "http://127.0.0.1:19121"
	// DefaultTimeout is the time limit of a call, besides what it waits.
	DefaultTimeout = 15 * time.Second
	// DefaultMaxAnswerBytes is the most that is read of one answer: more than
	// the largest message that a broker can be set to take.
	DefaultMaxAnswerBytes = 80 << 20
)

// Options say who calls which broker. Agent and Secret are required.
type Options struct {
	// URL is the broker's address, such as http://127.0.0.1:19121: scheme,
	// host and port, and the path at which a proxy has it, if any. Default
	// DefaultURL.
	URL string
	// CAFile holds certificates in PEM form: those that may vouch for the
	// broker's, in place of the system's. It is not used with a Transport.
	CAFile string
	// Agent is the name the calls are made under.
	Agent string
	// Secret signs the calls. It is never sent.
	Secret string
	// Timeout is the time limit of a call, on top of what the call asks the
	// broker to wait. Default DefaultTimeout.
	Timeout time.Duration
	// MaxAnswerBytes is the most that is read of one answer. Default
	// DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
	// UserAgent is sent as the header of that name. Default "agent-relay".
	UserAgent string
	// Transport carries the requests. Default: one of the client's own, which
	// follows the proxy variables of the environment except to this machine.
	Transport http.RoundTripper
	// Pauses are made before a call is tried again that may succeed then (see
	// Passing); each is spread by a fifth, and Retry-After prolongs it. There
	// are as many further tries as pauses; NoRetries makes none. A pause that
	// would outlast the context is not begun. Default: 2, 4 and 8 s.
	Pauses []time.Duration
	// AllowUnsigned takes answers that the broker did not sign, as those of
	// brokers before protocol 1.1. Whatever then listens at URL can pretend to
	// be the broker.
	AllowUnsigned bool
	// Now is the clock that timestamps are made from. Default time.Now.
	Now func() time.Time
}

// Client makes calls to one broker as one agent. Its methods may be called at
// the same time from several goroutines.
type Client struct {
	base           string
	agent, secret  string
	timeout        time.Duration
	maxAnswerBytes int64
	userAgent      string
	now            func() time.Time
	pauses         []time.Duration
	allowUnsigned  bool
	// offset is the broker's clock minus now, in nanoseconds, as far as it had
	// to be learned.
	offset *atomic.Int64
	// lastStamp is the last timestamp, in Unix nanoseconds.
	lastStamp *atomic.Int64
	http      http.Client
}

// New makes a client. It contacts nobody; Handshake shows whether the broker
// is there.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Agent == "":
		return nil, errors.New("the agent's name is missing")
	case !agentrelay.ValidName(o.Agent):
		return nil, fmt.Errorf("%q is no agent name: use 1 to %d of A-Z a-z 0-9 _ . -", o.Agent, agentrelay.MaxNameLength)
	case o.Secret == "":
		return nil, errors.New("the secret is missing; it is the one in the broker's configuration")
	case o.Timeout < 0:
		return nil, fmt.Errorf("a time limit of %v is negative", o.Timeout)
	case o.MaxAnswerBytes < 0:
		return nil, fmt.Errorf("an answer limit of %d bytes is negative", o.MaxAnswerBytes)
	}
	for _, pause := range o.Pauses {
		if pause < 0 {
			return nil, fmt.Errorf("a pause of %v is negative", pause)
		}
	}
	c := &Client{
		base: base, agent: o.Agent, secret: o.Secret,
		timeout: o.Timeout, maxAnswerBytes: o.MaxAnswerBytes,
		userAgent: o.UserAgent, now: o.Now, pauses: o.Pauses, allowUnsigned: o.AllowUnsigned, offset: new(atomic.Int64), lastStamp: new(atomic.Int64),
		http: http.Client{Transport: o.Transport, CheckRedirect: noRedirect},
	}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	if c.maxAnswerBytes == 0 {
		c.maxAnswerBytes = DefaultMaxAnswerBytes
	}
	if c.userAgent == "" {
		c.userAgent = "agent-relay"
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.pauses == nil {
		c.pauses = defaultPauses
	}
	if c.http.Transport == nil {
		transport := newTransport()
		if transport.TLSClientConfig, err = TLSConfig(o.CAFile); err != nil {
			return nil, err
		}
		c.http.Transport = transport
	}
	return c, nil
}

// withoutRetries returns the same client without further tries.
func (c *Client) withoutRetries() *Client {
	single := *c
	single.pauses = nil
	return &single
}

// Agent is the name the calls are made under.
func (c *Client) Agent() string { return c.agent }

// URL is the broker's address.
func (c *Client) URL() string { return c.base }

// Close closes connections that no call uses. The client stays usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func parseBase(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		// url.Error repeats the whole text, which may hold a password.
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", fmt.Errorf("the broker's URL cannot be read: %w; write it like %s", err, DefaultURL)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return "", fmt.Errorf("the broker's URL %q must be http or https and name a host; write it like %s", u.Redacted(), DefaultURL)
	case u.User != nil:
		return "", errors.New("the broker's URL must hold no user or password; calls are signed with the secret")
	case u.EscapedPath() != u.Path || strings.Contains(u.Path, "//"), u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return "", fmt.Errorf("the broker's URL %q must end after the port, or the path at which a proxy has the broker; write it like %s", text, DefaultURL)
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/"), nil
}

// TLSConfig is whom to take for a broker with TLS: those for whom the
// certificates in a file vouch, or the system's if the file is empty.
func TLSConfig(file string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return config, nil
}

// noRedirect makes a redirect an answer like any other: a signed request goes
// to the broker or nowhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               exceptLoopback(http.ProxyFromEnvironment),
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

type proxyFunc func(*http.Request) (*url.URL, error)

// exceptLoopback keeps requests to this machine away from any proxy: a proxy
// has a loopback of its own.
func exceptLoopback(next proxyFunc) proxyFunc {
	return func(r *http.Request) (*url.URL, error) {
		if isLoopback(r.URL.Hostname()) {
			return nil, nil
		}
		return next(r)
	}
}

func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}
