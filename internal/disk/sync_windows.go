package disk

// SyncDir does nothing: Windows cannot flush a directory, and NTFS journals
// its names.
func SyncDir(string) error { return nil }
