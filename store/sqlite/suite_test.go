package sqlite_test

import (
	"testing"

	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
	"github.com/agent-relay/agent-relay/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t storetest.TB, dir string, o store.Options) store.Store {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Options: o})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	})
}
