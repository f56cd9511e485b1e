package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-relay/agent-relay/client"
)

// writeCertificate makes a certificate that vouches for itself, for 127.0.0.1.
func writeCertificate(t *testing.T, dir string, serial int64) tlsConfig {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := tlsConfig{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{
		files.CertFile: {Type: "CERTIFICATE", Bytes: der}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		// A new file, as those who renew certificates make one.
		if err := errors.Join(os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// runProcess runs a broker in this process until the test ends.
func runProcess(t *testing.T, c *config) *process {
	t.Helper()
	var log strings.Builder
	p := openTestProcess(t, c, &log)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	c := processConfig(t)
	c.TLS = writeCertificate(t, dir, 1)
	p := runProcess(t, c)
	address := p.listener.Addr().String()
	caller, err := client.New(client.Options{
		URL: "https://" + address, Agent: "alpha", Secret: string(c.Secret), CAFile: c.TLS.CertFile, Pauses: client.NoRetries,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	if err := caller.Register(t.Context()); err != nil {
		t.Errorf("over TLS: %v", err)
	}
	stranger, err := client.New(client.Options{URL: "https://" + address, Agent: "alpha", Secret: string(c.Secret), Pauses: client.NoRetries})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if err := stranger.Register(t.Context()); err == nil {
		t.Error("a certificate for which nobody vouches is accepted")
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if got := servedSerial(t, address); got != 1 {
		t.Errorf("the certificate served is %d, want 1", got)
	}
	// While the files do not fit, the one before is served.
	old := readFile(t, c.TLS.KeyFile)
	writeCertificate(t, dir, 2)
	if err := os.WriteFile(c.TLS.KeyFile, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := servedSerial(t, address); got != 1 {
		t.Errorf("with files that do not fit, the certificate served is %d, want 1", got)
	}
	writeCertificate(t, dir, 3)
	if got := servedSerial(t, address); got != 3 {
		t.Errorf("the certificate served is %d, want the new one, 3", got)
	}
	if err := os.Remove(c.TLS.CertFile); err != nil {
		t.Fatal(err)
	}
	if got := servedSerial(t, address); got != 3 {
		t.Errorf("without a file, the certificate served is %d, want 3", got)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func servedSerial(t *testing.T, address string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestExposureIsRefused(t *testing.T) {
	dir := t.TempDir()
	good := writeCertificate(t, dir, 1)
	for name, test := range map[string]struct {
		change func(*config)
		want   string
	}{
		"in the clear":         {func(*config) {}, "would not be encrypted; in "},
		"with TLS":             {func(c *config) { c.TLS = good }, ""},
		"behind a proxy":       {func(c *config) { c.BehindProxy = true }, ""},
		"no certificate":       {func(c *config) { c.TLS = tlsConfig{filepath.Join(dir, "none"), good.KeyFile} }, "correct tls in "},
		"the key in its place": {func(c *config) { c.TLS = tlsConfig{good.KeyFile, good.KeyFile} }, "correct tls in "},
	} {
		t.Run(name, func(t *testing.T) {
			c := processConfig(t)
			c.Listen = "0.0.0.0:0"
			test.change(c)
			p, err := newTestApp(t).openProcess(t.Context(), c, slog.New(slog.DiscardHandler))
			if err == nil {
				if err := errors.Join(p.listener.Close(), p.close()); err != nil {
					t.Error(err)
				}
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// A proxy that cuts a path off, and changes the host, still lets signatures
// hold; who is asked for is believed of it alone.
func TestServeBehindProxy(t *testing.T) {
	c := processConfig(t)
	c.BehindProxy, c.PublicPrefix, c.PublicHosts = true, "/relay", []string{"relay.example.org"}
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	p := runProcess(t, c)
	target, err := url.Parse("http://" + p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
		r.Out.Host = "relay.example.org"
		r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.Path, "/relay"), ""
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close()
		<-served
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}()
	for _, address := range []string{"http://" + listener.Addr().String() + "/relay", target.String()} {
		caller, err := client.New(client.Options{URL: address, Agent: "alpha", Secret: string(c.Secret), Pauses: client.NoRetries})
		if err != nil {
			t.Fatal(err)
		}
		if err := caller.Register(t.Context()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := caller.Peers(t.Context()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		caller.Close()
	}
	wrong, err := client.New(client.Options{URL: "http://" + listener.Addr().String() + "/relay", Agent: "alpha", Secret: string(c.Secret) + "x", Pauses: client.NoRetries})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := wrong.Register(t.Context()); err == nil {
		t.Error("a bad signature passes a proxy")
	}
}

func TestBaseURLWithTLS(t *testing.T) {
	for want, c := range map[string]*config{
		"https://127.0.0.1:1":           {Listen: "0.0.0.0:1", TLS: tlsConfig{"/c", "/k"}},
		"https://relay.example.org:443": {Listen: "0.0.0.0:443", TLS: tlsConfig{"/c", "/k"}, PublicHosts: []string{"relay.example.org"}},
		"http://127.0.0.1:2":            {Listen: "127.0.0.1:2", PublicHosts: []string{"relay.example.org"}},
	} {
		if got := c.baseURL(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
