package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// hosts are the names under which this broker is asked.
type hosts map[string]bool

func newHosts(public []string) hosts {
	h := hosts{"localhost": true}
	for _, name := range public {
		h[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return h
}

// ours reports whether a Host header, with any port, names this broker. That
// keeps pages out whose name was made to resolve to a loopback address.
func (h hosts) ours(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), "."))
	if h[name] {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}

// clientAddress is who asks: the peer of the connection, or, if that is a
// trusted proxy, the last address in X-Forwarded-For that is none.
func (a *API) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	client := peer.Addr().Unmap()
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(forwarded) {
		if !a.trusts(client) {
			break
		}
		next, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			break
		}
		client = next.Unmap()
	}
	return client.WithZone("").String()
}

// throughProxy reports whether a request came from a trusted proxy, or from
// this machine.
func (a *API) throughProxy(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := peer.Addr().Unmap()
	return address.IsLoopback() || a.trusts(address)
}

func (a *API) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(a.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}
