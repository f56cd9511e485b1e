package setup

import "io/fs"

// syncDir does nothing: Windows cannot flush a directory, and NTFS journals
// its names.
func syncDir(string) error { return nil }

// openToOthers finds nothing: Windows has no mode bits, and access lists are
// not checked.
func openToOthers(fs.FileInfo, fs.FileMode) fs.FileMode { return 0 }

// ShellQuote writes s so that cmd.exe and PowerShell read it as one word.
func ShellQuote(s string) string { return `"` + s + `"` }
