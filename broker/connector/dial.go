package connector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// ParseURL makes the URL to dial from the one that a config gives: https and
// http become wss and ws, and the path ends in /relay. It refuses URLs of other
// schemes, and such as have a user or a fragment. Its errors do not quote it.
func ParseURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return "", errors.New("the connector's url cannot be parsed")
	}
	switch u.Scheme {
	case "https", "wss":
		u.Scheme = "wss"
	case "http", "ws":
		u.Scheme = "ws"
	default:
		return "", errors.New("the connector's url must begin with https, http, wss or ws")
	}
	switch {
	case u.Hostname() == "":
		return "", errors.New("the connector's url names no host")
	case u.User != nil:
		return "", errors.New("the connector's url must not hold a user or a password; the relay signs in with its token")
	case u.Fragment != "":
		return "", errors.New("the connector's url must not have a fragment (#)")
	}
	u.Path, u.RawPath = relayPath(u.Path), relayPath(u.RawPath)
	return u.String(), nil
}

// relayPath puts /relay at a path's end. What it makes of an empty raw path
// does no harm: url.URL ignores one that does not fit its path.
func relayPath(path string) string {
	path = strings.TrimRight(path, "/")
	if strings.HasSuffix(path, "/relay") {
		return path
	}
	return path + "/relay"
}

// WebSocketDialer dials a connector.
type WebSocketDialer struct {
	// URL is what ParseURL returned.
	URL string
	// Tokens signs in. Nil dials without a token.
	Tokens *TokenMinter
	// Options are the times and sizes of the connections.
	Options WebSocketOptions
	// Transport makes the request, if it is not to be the usual way; it must
	// hand over the connection, as http.Transport does.
	Transport http.RoundTripper
	// Now is the clock for tokens, by default time.Now.
	Now func() time.Time
}

// Dial implements Dialer with a token of its own for each dial.
func (d *WebSocketDialer) Dial(ctx context.Context) (FrameIO, bool, error) {
	now := d.Now
	if now == nil {
		now = time.Now
	}
	header := http.Header{}
	if d.Tokens != nil {
		header.Set("Authorization", "Bearer "+d.Tokens.Mint(now()))
	}
	transport := d.Transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.DisableKeepAlives = true // a refusal leaves no connection behind
		transport = own
	}
	conn, answer, err := websocket.Dial(ctx, d.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport: transport,
			// The token is for this connector alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader: header,
	})
	if err != nil {
		if answer != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			return nil, false, fmt.Errorf("dial the connector: it answered with status %d and did not switch to WebSocket", answer.StatusCode)
		}
		// The URL, which may hold a password of a kind, is not for the log.
		if at := (*url.Error)(nil); errors.As(err, &at) {
			err = at.Err
		}
		return nil, false, fmt.Errorf("dial the connector: %w", err)
	}
	return NewWebSocket(conn, d.Options), d.Tokens != nil, nil
}
