package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	agentrelay "github.com/agent-relay/agent-relay"
)

// messages shows a page.
func (d *display) messages(page []agentrelay.Message) {
	if d.json {
		for i := range page {
			d.jsonLine(&page[i])
		}
		return
	}
	rows := make([][]string, len(page))
	for i := range page {
		rows[i] = d.heading(&page[i])
	}
	widths := columnWidths(rows)
	for i := range page {
		d.message(&page[i], rows[i], widths)
	}
}

// jsonLine writes an envelope as one line. JSON strings hold no raw line breaks
// or tabs, so those that are found separate values and may be spaces instead.
func (d *display) jsonLine(m *agentrelay.Message) {
	line := m.AppendJSON(nil)
	for _, space := range []string{"\n", "\r", "\t"} {
		line = bytes.ReplaceAll(line, []byte(space), []byte(" "))
	}
	if d.width > 0 {
		line = escapeControls(line)
	}
	_, _ = d.out.Write(append(line, '\n')) // flush tells the error
}

// escapeControls keeps what is in JSON from driving a terminal, without
// changing what the JSON means (RFC 8259 section 7).
func escapeControls(line []byte) []byte {
	var b []byte
	for _, r := range string(line) {
		if drives(r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// heading is the line above a message's body, in columns: who, when, what,
// where it stands, and its id.
func (d *display) heading(m *agentrelay.Message) []string {
	what := string(m.Kind)
	if m.Type == agentrelay.TypeAck {
		what = "receipt"
	}
	return []string{m.From, d.when(m.TS), what, string(m.Status), m.ID}
}

func columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	return widths
}

// message shows one for reading.
func (d *display) message(m *agentrelay.Message, heading []string, widths []int) {
	for i, cell := range heading {
		style := dim
		switch {
		case i == 0:
			style = bold
		case m.Status == agentrelay.StatusFailed && cell == string(m.Status):
			style = red
		}
		padding := ""
		if i < len(heading)-1 {
			padding = strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+2)
		}
		_, _ = d.out.WriteString(d.paint(style, oneLine(cell)) + padding) // flush tells the error
	}
	_, _ = d.out.WriteString("\n")
	for _, note := range d.notes(m) {
		_, _ = d.out.WriteString(d.paint(dim, d.wrap(oneLine(note), "  ")) + "\n")
	}
	_, _ = d.out.WriteString(d.wrap(printable(bodyText(m)), "  ") + "\n")
}

// notes are what is worth knowing of a message besides its heading.
func (d *display) notes(m *agentrelay.Message) []string {
	var notes []string
	add := func(parts ...string) { notes = append(notes, strings.Join(parts, "")) }
	if m.ReplyTo != "" {
		add("answers ", m.ReplyTo)
	}
	if m.LeaseID != "" {
		add("lease ", m.LeaseID, ", over ", d.when(m.LeaseUntil))
	}
	if m.Error != "" {
		add("error: ", m.Error)
	}
	return notes
}

// bodyText is a body for reading: the text of one that is nothing but text, the
// outcome that a receipt tells, else the JSON as it is.
func bodyText(m *agentrelay.Message) string {
	var object map[string]json.RawMessage
	var text, status string
	switch {
	case json.Unmarshal(m.Body, &text) == nil && text != "":
		return text
	case json.Unmarshal(m.Body, &object) != nil:
	case m.Type == agentrelay.TypeAck && json.Unmarshal(object["status"], &status) == nil:
		_ = json.Unmarshal(object["error"], &text)
		status = strings.TrimSuffix(status+": "+text, ": ")
		if string(object["ambiguous"]) == "true" {
			status += " (it may have been done all the same)"
		}
		return status
	case len(object) == 1 && json.Unmarshal(object["text"], &text) == nil && text != "":
		return text
	}
	return string(m.Body)
}
