package socket

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// PROTOCOL.md has every method and every event.
func TestControlDocumented(t *testing.T) {
	protocol, err := os.ReadFile(filepath.Join("..", "..", "PROTOCOL.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(protocol), "\n## The control socket\n")
	text, _, _ = strings.Cut(text, "\n## ")
	names := append(EventNames(), string(eventLagged), "hello", "subscribe", "unsubscribe", "send", "fire_hook")
	for name := range NewControl(ControlOptions{}).methods {
		names = append(names, name)
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("PROTOCOL.md, \"The control socket\", lacks %s", name)
		}
	}
}
