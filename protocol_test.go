package agentrelay_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	agentrelay "github.com/agent-relay/agent-relay"
)

func readProtocol(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns what stands under a heading, up to the next of its level.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(doc, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("PROTOCOL.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// TestProtocolSections holds the headings that comments in the code name.
func TestProtocolSections(t *testing.T) {
	doc := readProtocol(t)
	for _, heading := range []string{"Names and ids", "Signature", "Order of checks", "Errors", "Delivery"} {
		section(t, doc, heading)
	}
}

// workedExamples are the blocks of that language in the section on signatures,
// each by its members.
func workedExamples(t *testing.T, language string) (examples []map[string]string) {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)\n```").FindAllStringSubmatch(section(t, readProtocol(t), "Signature"), -1)
	for _, block := range blocks {
		field := map[string]string{}
		for line := range strings.SplitSeq(block[1], "\n") {
			name, value, _ := strings.Cut(line, " ")
			field[name] = strings.TrimLeft(value, " ")
		}
		if field["secret"] == "" {
			t.Errorf("an example without a secret: %s", block[1])
		}
		examples = append(examples, field)
	}
	return examples
}

func TestProtocolSignatureExamples(t *testing.T) {
	examples := workedExamples(t, "signature")
	if len(examples) < 3 {
		t.Fatalf("%d worked examples, want at least 3", len(examples))
	}
	for _, field := range examples {
		got := agentrelay.Sign(field["secret"], field["method"], field["target"], field["timestamp"], []byte(field["body"]))
		if field["signature"] != got {
			t.Errorf("%s %s: PROTOCOL.md says %q, the signature is %q", field["method"], field["target"], field["signature"], got)
		}
	}
	answers := workedExamples(t, "answer")
	if len(answers) == 0 {
		t.Fatal("no answer is worked out")
	}
	for _, field := range answers {
		status, err := strconv.Atoi(field["status"])
		if err != nil {
			t.Fatal(err)
		}
		if got := agentrelay.SignAnswer(field["secret"], field["request"], status, []byte(field["body"])); field["signature"] != got {
			t.Errorf("an answer: PROTOCOL.md says %q, the signature is %q", field["signature"], got)
		}
	}
}

// TestProtocolErrors compares the tables of codes and reasons with those that
// the code knows: none missing, none too many, in the same order.
func TestProtocolErrors(t *testing.T) {
	errors := section(t, readProtocol(t), "Errors")
	codes, reasons, found := strings.Cut(errors, "\n| reason |")
	if !found {
		t.Fatal("PROTOCOL.md has no table of reasons")
	}
	var want []string
	for _, code := range agentrelay.Codes() {
		want = append(want, string(code))
	}
	if got := firstColumn(codes); !slices.Equal(got, want) {
		t.Errorf("codes in PROTOCOL.md:\n%v\nin the code:\n%v", got, want)
	}
	want = nil
	for _, reason := range agentrelay.Reasons() {
		want = append(want, string(reason))
	}
	if got := firstColumn(reasons); !slices.Equal(got, want) {
		t.Errorf("reasons in PROTOCOL.md:\n%v\nin the code:\n%v", got, want)
	}
}

var firstCell = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

func firstColumn(table string) []string {
	var column []string
	for _, row := range firstCell.FindAllStringSubmatch(table, -1) {
		column = append(column, row[1])
	}
	return column
}
