package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
)

// The values of --log-format.
const (
	logFormatAuto = "auto"
	logFormatText = "text"
	logFormatJSON = "json"
)

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// logConfig says what is logged and how. It comes from flags.
type logConfig struct {
	// Level is one of logLevels.
	Level string
	// Format is text, json or auto: text on a terminal, JSON otherwise.
	Format string
}

func (c *logConfig) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.Level, "log-level", "info", "log what is at least this severe: debug, info, warn or error")
	cmd.Flags().StringVar(&c.Format, "log-format", logFormatAuto, "log as text or json; auto is text on a terminal, json otherwise")
}

// check returns wrong usage for values that the flags do not have.
func (c *logConfig) check() error {
	if _, ok := logLevels[c.Level]; !ok {
		return usagef("--log-level must be debug, info, warn or error")
	}
	switch c.Format {
	case logFormatAuto, logFormatText, logFormatJSON:
		return nil
	}
	return usagef("--log-format must be auto, text or json")
}

// newLogger writes to w as c says. c has been checked.
func newLogger(w io.Writer, c logConfig) *slog.Logger {
	options := &slog.HandlerOptions{Level: logLevels[c.Level]}
	f, isFile := w.(*os.File)
	if c.Format == logFormatText || c.Format == logFormatAuto && isFile && isTerminal(f) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
