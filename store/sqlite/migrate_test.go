package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/agent-relay/agent-relay/migrations"
	"github.com/agent-relay/agent-relay/store"
)

// A database of the first version is brought up to date, and keeps what is in it.
func TestUpgrade(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	db := sql.OpenDB(newConnector(filepath.Join(dir, databaseFile), writeSettings))
	files, err := goose.NewProvider(goose.DialectSQLite3, db, migrations.SQLite())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)); err != nil {
		t.Fatal(err)
	}
	if _, err := files.UpTo(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO agents (name, registered_at, last_seen, position) VALUES ('ann', 1, 2, 3), ('ben', NULL, 0, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	agents, err := s.Agents(ctx)
	want := []store.Agent{{Name: "ann", LastSeen: time.UnixMilli(2)}}
	if err != nil || !cmp.Equal(agents, want) {
		t.Errorf("the agents are %+v, %v; want %+v", agents, err, want)
	}
	changed, err := s.AddAgent(ctx, "ann", store.AgentPatch{}, store.Key{ID: "k", Secret: "s"})
	if err != nil || !changed.Keyed || len(changed.Keys) != 1 {
		t.Errorf("got %+v, %v", changed, err)
	}
}
