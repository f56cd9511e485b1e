// Package filesystem tells what a directory lies on.
package filesystem
