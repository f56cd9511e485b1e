package sqlite

// fileSizeLimit is 0: there is none on Windows.
func fileSizeLimit() int64 { return 0 }
