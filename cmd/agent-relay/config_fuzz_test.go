package main

import (
	"errors"
	"strings"
	"testing"
)

// A config from anywhere is read or refused, and what refuses it does not
// repeat a secret that stands in it.
func FuzzParseConfig(f *testing.F) {
	// Too long to be an agent's name, which errors do repeat.
	secret := strings.Repeat("canary-", 10)
	for _, seed := range []string{
		"", "secret: SECRET\n", "secret: 'SECRET'\nlease: 1m\n", "SECRET", "- SECRET", "? SECRET", "SECRET: a\nSECRET: b\n",
		"secret: \"SECRET\nlease: 1m", "agents:\n  a: {allowed_targets: [b, SECRET]}\n  SECRET: {}\n", "agents: {a: {SECRET: 1}}",
		"lockout: {failures: 1, duration: 1m}\nrate_limit:\n  per_agent: 0x10\n  per_address: 1_000\n", "lease: SECRET\nlisten: SECRET\nstorage: SECRET\n",
		"trusted_proxies: [10.0.0.0/8, ::1, SECRET]\npublic_hosts: [a.b, SECRET]\n", "\ufeffsecret: SECRET\r\n", "%YAML 1.2\n---\na: !!str b\n...\n",
		"a: &x [*x]\nb: {<<: *x}\n", "secret: |\n  SECRET\n", "secret: >-2\n  SECRET\n", "@SECRET", "\"\\xSECRET\"", "a: 'b''c'\n", "max_attempts: -0o7\n",
		"[[[[[[[[[[", "- - - - - - - - - - a", "{a: {b: {c: ", "a:\n\tb: c\n", "a: b: c\n", "1: 2\nnull: 3\ntrue: 4\n.inf: 5\n", "---\na: b\n---\nc: d\n",
	} {
		f.Add(strings.ReplaceAll(seed, "SECRET", secret))
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, problems := parseConfig("config.yaml", []byte(text))
		problems = append(problems, c.validate(problems)...)
		if len(problems) == 0 {
			if len(c.Secret) < minSecretLength || c.Lease < minLease || c.MaxAttempts < 1 {
				t.Errorf("accepted %+v", c)
			}
			return
		}
		var err error = newConfigError("config.yaml", problems)
		var own *configError
		if !errors.As(err, &own) || len(own.problems) != len(problems) {
			t.Fatalf("got %v", err)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the secret: %v", err)
		}
		for _, p := range own.problems {
			if strings.ContainsAny(p, "\n\r\x00") || !strings.HasPrefix(p, "config.yaml:") {
				t.Errorf("a problem is not one line: %q", p)
			}
		}
	})
}
