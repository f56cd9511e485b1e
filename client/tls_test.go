package client

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNewRefusesBadCAFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, filepath.Join(t.TempDir(), "none")} {
		if _, err := New(Options{Agent: "alpha", Secret: "s", CAFile: path}); err == nil {
			t.Errorf("%s is taken for certificates to trust", path)
		}
	}
}
