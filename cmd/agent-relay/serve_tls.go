package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
)

// certificate is one that is read again when its files change.
type certificate struct {
	files tlsConfig
	log   *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	seen   [2]fs.FileInfo
}

// loadCertificate reads a certificate and its key.
func loadCertificate(files tlsConfig, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log}
	var err error
	if c.seen, err = c.look(); err == nil {
		err = c.load()
	}
	return c, err
}

func (c *certificate) look() (seen [2]fs.FileInfo, err error) {
	for i, path := range []string{c.files.CertFile, c.files.KeyFile} {
		if seen[i], err = os.Stat(path); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", c.files.CertFile, c.files.KeyFile, err)
	}
	c.loaded = &pair
	return nil
}

// get returns the certificate for a new connection. One that cannot be read, as
// while its files are being replaced, leaves the one before.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, err := c.look()
	if err == nil && same(seen[0], c.seen[0]) && same(seen[1], c.seen[1]) {
		return c.loaded, nil
	}
	if err == nil {
		c.seen = seen
		err = c.load()
	}
	if err != nil {
		c.log.Warn("the certificate changed and cannot be read; the one before is used on", "error", err)
		return c.loaded, nil
	}
	c.log.Info("certificate read again", "file", c.files.CertFile)
	return c.loaded, nil
}

func same(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// secure has a listener speak TLS, if c says so. Only HTTP/1.1 is spoken within:
// what is signed is a request line.
func (c *config) secure(listener net.Listener, log *slog.Logger) (net.Listener, error) {
	if !c.TLS.used() {
		return listener, nil
	}
	cert, err := loadCertificate(c.TLS, log)
	if err != nil {
		return nil, fmt.Errorf("%w; correct tls in %s", err, c.file)
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: cert.get, NextProtos: []string{"http/1.1"},
	}), nil
}

// errExposed refuses to serve other machines without encryption.
var errExposed = errors.New("other machines may reach this address, and requests would not be encrypted")

// checkExposure refuses an address that other machines reach in the clear.
func (c *config) checkExposure(addr net.Addr) error {
	if isLoopback(addr) || c.TLS.used() || c.BehindProxy {
		return nil
	}
	return fmt.Errorf("listen %s: %w; in %s, listen on 127.0.0.1, or set tls with cert_file and key_file, or behind_proxy: true with trusted_proxies and public_hosts if a proxy with TLS stands before it",
		c.Listen, errExposed, c.file)
}
