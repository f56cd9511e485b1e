package agentrelay

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every rule in SECURITY.md names tests, and every test named is there.
func TestSecurityRulesHaveTests(t *testing.T) {
	text, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		tests.Write(code)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	code := tests.String()
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	_, table, _ := strings.Cut(string(text), "\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := 0
	for row := range strings.Lines(table) {
		rows++
		if !name.MatchString(row) {
			t.Errorf("this rule has no test: %s", row)
		}
	}
	if rows < 20 {
		t.Errorf("there are %d rules", rows)
	}
	for _, found := range name.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(code, "func "+found[1]+"(t *testing.T)") && !strings.Contains(code, "func "+found[1]+"(f *testing.F)") {
			t.Errorf("there is no %s", found[1])
		}
	}
}
