package setup

import "io/fs"

// openToOthers finds nothing: Windows has no mode bits, and access lists are
// not checked.
func openToOthers(fs.FileInfo, fs.FileMode) fs.FileMode { return 0 }

// ShellQuote writes s so that cmd.exe and PowerShell read it as one word.
func ShellQuote(s string) string { return `"` + s + `"` }
