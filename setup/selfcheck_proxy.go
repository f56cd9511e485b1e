package setup

import (
	"net/netip"
	"net/url"
	"strings"
)

// proxy looks for proxy variables that would lead other clients of the broker
// astray: ours never uses a proxy to reach this machine, but Python's urllib
// and others do unless NO_PROXY names it.
func (o *SelfcheckOptions) proxy() Check {
	u, err := url.Parse(o.URL)
	if err != nil {
		return fail("correct the broker's URL", "%s is no URL", o.URL)
	}
	set := ""
	for _, name := range []string{u.Scheme + "_proxy", strings.ToUpper(u.Scheme) + "_PROXY", "all_proxy", "ALL_PROXY"} {
		if o.Env(name) != "" {
			set = name
			break
		}
	}
	if set == "" {
		return pass("none is set")
	}
	excepted := o.Env("no_proxy")
	if excepted == "" {
		excepted = o.Env("NO_PROXY")
	}
	if matchesNoProxy(u.Hostname(), excepted) {
		return pass("%s is set, and NO_PROXY names %s", set, u.Hostname())
	}
	list := u.Hostname()
	if excepted != "" {
		list = excepted + "," + list
	}
	list = ShellQuote(list)
	return fail("run: export NO_PROXY="+list+" no_proxy="+list, "%s is set, so some clients would ask the proxy for %s", set, u.Hostname())
}

// matchesNoProxy reads the form that most clients agree on: names, which stand
// for their subdomains too, addresses, networks, or * for all.
func matchesNoProxy(host, list string) bool {
	addr, addrErr := netip.ParseAddr(host)
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		name := strings.TrimPrefix(strings.TrimPrefix(entry, "*"), ".")
		switch {
		case entry == "":
		case entry == "*", strings.EqualFold(host, name):
			return true
		case addrErr == nil:
			if network, err := netip.ParsePrefix(entry); err == nil && network.Contains(addr) {
				return true
			}
		case name != "" && strings.HasSuffix(strings.ToLower(host), "."+name):
			return true
		}
	}
	return false
}
