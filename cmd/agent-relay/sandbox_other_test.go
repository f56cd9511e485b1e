//go:build !linux

package main

import "os"

// sandboxed is a program of tests that run on Linux alone.
func sandboxed() { os.Exit(1) }
