// Package migrations holds the schema of each store, as SQL that only ever
// moves forward. A released file never changes; a change is a new file.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed sqlite/*.sql
var files embed.FS

// SQLite is the schema of store/sqlite.
func SQLite() fs.FS {
	dir, err := fs.Sub(files, "sqlite")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return dir
}
