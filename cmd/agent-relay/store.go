package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agent-relay/agent-relay/store"
	"github.com/agent-relay/agent-relay/store/sqlite"
)

// errDamaged ends store check when something is damaged.
var errDamaged = errors.New("the store is damaged; save what is readable with `agent-relay store salvage`")

func (a *app) storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check, copy, move and mend the store",
		Long: `Work on the files of the broker's store. backup and export may be used while
the broker runs; for the others it must be stopped.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			_ = cmd.Help()
			return &exitError{status: exitUsage}
		},
	}
	cmd.AddCommand(
		a.storeSub("check", "check", "Look for damage", 0, a.storeCheck),
		a.storeSub("backup", "backup FILE", "Write a consistent copy, checked and on disk, to a new file", 1, a.storeBackup),
		a.storeSub("restore", "restore FILE", "Put a copy into the place of the store, which is kept beside it", 1, a.storeRestore),
		a.storeSub("salvage", "salvage FILE", "Write what is readable of a damaged store to a new file, for restore", 1, a.storeSalvage),
		a.storeSub("export", "export FILE", "Write agents and messages as JSON lines to a new file (- is standard output)", 1, a.storeExport),
		a.storeSub("import", "import FILE", "Read what export wrote, or an older relay's messages.jsonl (- is standard input)", 1, a.storeImport),
	)
	return cmd
}

// storeAction works on the store that a config names; file is its argument, if
// it has one.
type storeAction func(ctx context.Context, c *config, file string) error

func (a *app) storeSub(name, use, short string, args int, act storeAction) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use: use, Short: short, Example: "  agent-relay store " + name + map[int]string{0: "", 1: " relay-copy"}[args],
		Args: arguments(cobra.ExactArgs(args)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := configPath(flag, a.env)
			if err != nil {
				return err
			}
			c, err := loadConfig(path, a.env)
			if err != nil {
				return err
			}
			if c.Storage != storageSQLite {
				return usagef("%s says storage: %s, which has no files", path, c.Storage)
			}
			return act(cmd.Context(), c, firstOf(args...))
		},
	}
	cmd.Flags().StringVar(&flag, "config", "", configFlagHelp)
	if args == 1 {
		cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	return cmd
}

func (a *app) storeCheck(ctx context.Context, c *config, _ string) error {
	found := 0
	err := sqlite.Check(ctx, c.DataDir, func(d store.Damage) {
		found++
		what := d.What
		if d.ID != "" {
			what = d.ID + ": " + what
		}
		fmt.Fprintln(a.stdout, "damaged: "+printable(what))
	})
	if err != nil || found > 0 {
		if found > 0 {
			err = errors.Join(err, errDamaged)
		}
		return err
	}
	_, err = fmt.Fprintln(a.stdout, "ok: nothing is damaged")
	return err
}

func (a *app) storeBackup(ctx context.Context, c *config, file string) error {
	if err := sqlite.Backup(ctx, c.DataDir, file); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "ok: %s is a copy of the store in %s\n", file, c.DataDir)
	return err
}

func (a *app) storeRestore(ctx context.Context, c *config, file string) error {
	kept, err := sqlite.Restore(ctx, file, c.DataDir, time.Now())
	if kept != "" {
		a.note("what was there is kept in %s", kept)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "ok: the store in %s is that of %s\n", c.DataDir, file)
	return err
}

func (a *app) storeSalvage(ctx context.Context, c *config, file string) error {
	saved, err := sqlite.Salvage(ctx, c.DataDir, file)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.stdout, "saved: %d agents and %d messages, in %s\n", saved.Agents, saved.Messages, file); err != nil {
		return err
	}
	if saved.Complete() {
		return nil
	}
	_, err = fmt.Fprintf(a.stdout, "missing: %d damaged messages, %d places that cannot be read, the last %d commits\n",
		saved.Damaged, saved.Unreadable, saved.MissingCommits)
	return errors.Join(err, &exitError{status: exitFailure, err: errors.New("not everything could be saved")})
}

func (a *app) storeExport(ctx context.Context, c *config, file string) error {
	out := a.stdout
	var f *os.File
	if file != "-" {
		var err error
		if f, err = os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		out = f
	}
	bar := a.newBar("exported")
	err := sqlite.Export(ctx, c.DataDir, out, bar.show)
	bar.end()
	if f != nil {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return err
}

func (a *app) storeImport(ctx context.Context, c *config, file string) error {
	in := a.stdin
	bar := a.newBar("read")
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		in = &counting{from: f, all: info.Size(), show: bar.show}
	}
	done, err := sqlite.Import(ctx, c.DataDir, in, c.MessageTTL, time.Now())
	bar.end()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "imported: %d agents and %d messages; %d were there already\n", done.Agents, done.Messages, done.Known)
	return err
}

// counting tells how much of a file was read.
type counting struct {
	from      io.Reader
	read, all int64
	show      func(done, all int64)
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += int64(n)
	c.show(c.read, c.all)
	return n, err
}

// bar shows on a terminal how far something is.
type bar struct {
	out    io.Writer // nil if it is no terminal
	what   string
	shown  int64
	behind bool
}

func (a *app) newBar(what string) *bar {
	b := &bar{what: what, shown: -1}
	if f, ok := a.stderr.(*os.File); ok && isTerminal(f) {
		b.out = f
	}
	return b
}

const barWidth = 40

func (b *bar) show(done, all int64) {
	if b.out == nil || all <= 0 {
		return
	}
	percent := min(100, done*100/all)
	if percent == b.shown {
		return
	}
	b.shown, b.behind = percent, true
	full := int(percent) * barWidth / 100
	fmt.Fprintf(b.out, "\r%s [%-*s] %3d %%", b.what, barWidth, "########################################"[:full], percent)
}

// end leaves the line to what comes next.
func (b *bar) end() {
	if b.behind {
		fmt.Fprintln(b.out)
	}
}
