package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"
	sqlite "modernc.org/sqlite"

	"github.com/agent-relay/agent-relay/migrations"
)

// readConnections bounds concurrent reads. Each keeps a page cache of about
// 2 MB.
const readConnections = 4

// applicationID marks the file as the relay's; "ARLY" in ASCII
// (https://www.sqlite.org/pragma.html#pragma_application_id).
const applicationID = 0x41524c59

// setting is a PRAGMA and what it must read back as.
type setting struct {
	name, value, reads string
}

// The settings of each connection. fullfsync matters on macOS, where fsync
// alone does not reach the platter.
var (
	writeSettings = append([]setting{
		{"journal_mode", "WAL", "wal"},
		{"synchronous", "FULL", "2"},
		{"fullfsync", "ON", "1"},
		{"checkpoint_fullfsync", "ON", "1"},
		{"journal_size_limit", "67108864", "67108864"},
		{"secure_delete", "ON", "1"},
		{"cache_size", "-8000", "-8000"},
	}, commonSettings...)
	readSettings = append([]setting{
		{"query_only", "ON", "1"},
		{"cache_size", "-2000", "-2000"},
	}, commonSettings...)
	commonSettings = []setting{
		{"busy_timeout", "5000", "5000"},
		{"trusted_schema", "OFF", "0"},
		{"cell_size_check", "ON", "1"},
	}
)

// connector opens connections and reads their settings back.
type connector struct {
	name     string
	settings []setting
}

func newConnector(path string, settings []setting) *connector {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	return &connector{name: (&url.URL{Scheme: "file", Path: slashed}).String(), settings: settings}
}

func (c *connector) Driver() driver.Driver { return &sqlite.Driver{} }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.name)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	for _, s := range c.settings {
		if err := s.apply(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func (s setting) apply(conn driver.Conn) error {
	ctx := context.Background()
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, "PRAGMA "+s.name+" = "+s.value, nil); err != nil {
		return fmt.Errorf("set %s: %w", s.name, err)
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "PRAGMA "+s.name, nil)
	if err != nil {
		return fmt.Errorf("read %s back: %w", s.name, err)
	}
	defer rows.Close()
	got := make([]driver.Value, 1)
	if err := rows.Next(got); err != nil {
		return fmt.Errorf("read %s back: %w", s.name, err)
	}
	if text := fmt.Sprint(got[0]); text != s.reads {
		return fmt.Errorf("SQLite setting %s reads %q instead of %q; the file system may not support it", s.name, text, s.reads)
	}
	return nil
}

// migrate brings the schema up to this binary's version. It refuses files of
// other programs and of newer relays.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	var id, tables int64
	if err := db.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id), count(*) FROM sqlite_schema`).Scan(&id, &tables); err != nil {
		return fmt.Errorf("%s is not a usable database: %w; move it away, or restore a copy", path, err)
	}
	if tables > 0 && id != applicationID {
		return fmt.Errorf("%s is a database of another program; set another data_dir", path)
	}
	if tables == 0 {
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)); err != nil {
			return fmt.Errorf("set up the database %s: %w", path, err)
		}
	}
	files, err := goose.NewProvider(goose.DialectSQLite3, db, migrations.SQLite())
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	current, newest, err := files.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the version of the database %s: %w", path, err)
	}
	if current > newest {
		return fmt.Errorf("%s has schema version %d, newer than the %d this program knows; use a newer agent-relay", path, current, newest)
	}
	if _, err := files.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database %s: %w", path, err)
	}
	return nil
}
