// Package umask narrows the process's file mode creation mask for a moment.
// It stands apart because the mask belongs to the whole process: all who
// change it must do so under one lock.
package umask
