package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// display is how a command shows what it has to say: as JSON for programs, or
// as text for people. Text is laid out for the terminal it goes to; elsewhere
// it has no colours, lines of any length and exact times. Nothing reaches the
// outside before flush.
type display struct {
	out  *bufio.Writer
	json bool
	// width is the terminal's, in columns; 0 is no terminal.
	width  int
	colour bool
	now    func() time.Time
}

const jsonHelp = `

Messages are printed for reading on a terminal, and elsewhere as JSON, an object
a line; --json and --json=false choose.`

func addJSONFlag(cmd *cobra.Command) { cmd.Flags().Bool("json", false, "print JSON") }

// display makes a command's. One that prints messages prints them as text only
// where a person reads it, unless it is told.
func (a *app) display(cmd *cobra.Command, messages bool) *display {
	d := &display{out: bufio.NewWriter(a.stdout), now: time.Now}
	d.width = terminalWidth(a.stdout)
	d.colour = d.width > 0 && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" &&
		(runtime.GOOS != "windows" || a.env("WT_SESSION") != "")
	d.json, _ = cmd.Flags().GetBool("json")
	if messages && !cmd.Flags().Changed("json") {
		d.json = d.width == 0
	}
	return d
}

// defaultWidth is taken for a terminal that does not tell its own.
const defaultWidth = 80

// terminalWidth is the number of columns of a terminal, and 0 for what is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return width
	}
	return defaultWidth
}

func (d *display) flush() error { return d.out.Flush() }

// printf writes text. Its arguments may come from anywhere; see printable.
func (d *display) printf(format string, args ...any) {
	_, _ = io.WriteString(d.out, printable(fmt.Sprintf(format, args...))) // flush tells the error
}

// result shows the outcome of a command: document with --json, else text.
func (d *display) result(document any, format string, args ...any) error {
	if !d.json {
		d.printf(format+"\n", args...)
		return nil
	}
	return d.document(document)
}

// document shows a value as JSON.
func (d *display) document(value any) error {
	e := json.NewEncoder(d.out)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// table shows rows under a heading. A cell may be of any text.
func (d *display) table(heading []string, rows [][]string) error {
	w := tabwriter.NewWriter(d.out, 0, 8, 2, ' ', 0)
	if d.width > 0 {
		rows = append([][]string{heading}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// cell is a text in a line, and how it stands out.
type cell struct {
	text string
	style
}

// columns shows a line of cells. A cell may be of any text.
func (d *display) columns(cells ...cell) {
	for i, c := range cells {
		if i > 0 {
			_, _ = d.out.WriteString("  ") // flush tells the error
		}
		_, _ = d.out.WriteString(d.paint(c.style, oneLine(c.text)))
	}
	_, _ = d.out.WriteString("\n")
}

// facts shows names, and what they are.
func (d *display) facts(facts [][]string) {
	width := columnWidths(facts)[0]
	for _, f := range facts {
		d.columns(cell{pad(f[0], width), dim}, cell{f[1], ""})
	}
}

// pad fills a text up with spaces.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// when tells a time: for a person how long ago, else exactly.
func (d *display) when(t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case d.width > 0:
		return humanize.RelTime(t, d.now(), "ago", "from now")
	}
	return t.UTC().Format(time.RFC3339)
}

// style is how a text stands out on a terminal (ECMA-48, SGR).
type style string

const (
	bold style = "\x1b[1m"
	dim  style = "\x1b[2m"
	red  style = "\x1b[31m"

	plain = "\x1b[0m"
)

func (d *display) paint(s style, text string) string {
	if !d.colour || s == "" {
		return text
	}
	return string(s) + text + plain
}

// wrap breaks text into lines that fit the terminal behind an indent.
func (d *display) wrap(text, indent string) string {
	if d.width > 2*len(indent) {
		text = ansi.Wrap(text, d.width-len(indent), "")
	}
	return indent + strings.ReplaceAll(text, "\n", "\n"+indent)
}

// oneLine makes a cell of a text.
func oneLine(text string) string {
	return strings.ReplaceAll(printable(text), "\n", " ")
}
