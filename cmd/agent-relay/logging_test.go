package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestLogConfigCheck(t *testing.T) {
	for _, level := range []string{"debug", "info", "warn", "error", "", "INFO", "trace"} {
		for _, format := range []string{"auto", "text", "json", "", "xml"} {
			c := logConfig{Level: level, Format: format}
			want := strings.Contains(" debug info warn error ", " "+level+" ") && level != "" && format != "" && format != "xml"
			err := c.check()
			if (err == nil) != want {
				t.Errorf("%+v: %v", c, err)
			}
			var usage *exitError
			if err != nil && (!errors.As(err, &usage) || usage.status != exitUsage) {
				t.Errorf("%+v: %v is not wrong usage", c, err)
			}
		}
	}
}

func TestLoggerLevel(t *testing.T) {
	all := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for n, name := range []string{"debug", "info", "warn", "error"} {
		var b strings.Builder
		log := newLogger(&b, logConfig{Level: name, Format: logFormatText})
		for _, level := range all {
			log.Log(context.Background(), level, "x")
		}
		if got, want := strings.Count(b.String(), "\n"), len(all)-n; got != want {
			t.Errorf("%s logs %d records, want %d", name, got, want)
		}
	}
}

func TestLoggerFormat(t *testing.T) {
	var b strings.Builder
	for format, want := range map[string]string{"auto": `"msg":"x"`, "json": `"msg":"x"`, "text": "msg=x"} {
		b.Reset()
		newLogger(&b, logConfig{Level: "info", Format: format}).Info("x")
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", format, b.String())
		}
	}
	// A character device is taken for a terminal.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, ok := newLogger(null, logConfig{Level: "info", Format: logFormatAuto}).Handler().(*slog.TextHandler); !ok {
		t.Error("on a terminal the log is not text")
	}
	regular, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer regular.Close()
	if _, ok := newLogger(regular, logConfig{Level: "info", Format: logFormatAuto}).Handler().(*slog.JSONHandler); !ok {
		t.Error("in a file the log is not JSON")
	}
}
