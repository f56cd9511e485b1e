package main

import (
	"path/filepath"
	"strings"
)

// tlsConfig names the files of a certificate and its key, absolute or empty.
type tlsConfig struct {
	CertFile, KeyFile string
}

func (t *tlsConfig) fields() fields {
	return fields{"cert_file": text(&t.CertFile), "key_file": text(&t.KeyFile)}
}

// used reports whether the broker speaks TLS.
func (t *tlsConfig) used() bool { return t.CertFile != "" }

// exposure checks how the broker may be reached from other machines.
func (v *validation) exposure() {
	c := v.c
	for key, path := range map[string]string{"tls.cert_file": c.TLS.CertFile, "tls.key_file": c.TLS.KeyFile, "ca_file": c.CAFile} {
		if path != "" && !filepath.IsAbs(path) {
			v.add(key, "must be an absolute path; ~ and variables are not expanded here")
		}
	}
	switch {
	case c.TLS.CertFile != "" && c.TLS.KeyFile == "":
		v.add("tls", "has a cert_file and no key_file; name both, or neither")
	case c.TLS.KeyFile != "" && c.TLS.CertFile == "":
		v.add("tls", "has a key_file and no cert_file; name both, or neither")
	}
	if c.BehindProxy && len(c.TrustedProxies) == 0 {
		v.add("behind_proxy", "needs trusted_proxies: the address from which the proxy connects, such as [127.0.0.1]")
	}
	if c.BehindProxy && len(c.PublicHosts) == 0 {
		v.add("behind_proxy", "needs public_hosts: the names under which clients call the proxy")
	}
	if c.PublicPrefix != "" {
		v.prefix(c.PublicPrefix)
	}
}

func (v *validation) prefix(prefix string) {
	plain := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/-._~", r))
	}
	if !strings.HasPrefix(prefix, "/") || strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "//") || strings.ContainsFunc(prefix, plain) {
		v.add("public_prefix", "must be a path such as /relay: it begins with a slash, does not end with one, and needs no escapes")
	}
	if !v.c.BehindProxy {
		v.add("public_prefix", "needs behind_proxy: true; without a proxy nobody cuts a path off")
	}
}
