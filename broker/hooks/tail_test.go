package hooks

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTail(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct{ name, written, want string }{
		{"nothing", "", ""},
		{"space", " \n\t ", ""},
		{"trimmed", "\n boom \n", "boom"},
		{"as long as may be", x(1024), x(1024)},
		{"one more", "a" + x(1024), x(1024)},
		{"a newline more", x(1024) + "\n", x(1023)},
		{"within two bytes", "é" + x(1023), x(1023)},
		{"within three bytes", "€" + x(1022), x(1022)},
		{"within four bytes", "😊" + x(1021), x(1021)},
		{"at a boundary", "a😊" + x(1020), "😊" + x(1020)},
		{"no text at the start", "\xa9\xa9" + x(10), "\ufffd" + x(10)},
		{"no text at the end", x(10) + "\xf0\x9f", x(10) + "\ufffd"},
		{"no text at all", strings.Repeat("\x80", 5000), "\ufffd"},
		{"grows when mended", strings.Repeat("\xffx", 512), strings.Repeat("x\ufffd", 256)[1:] + "x"},
		{"much", x(100_000) + "the end", x(1017) + "the end"},
	} {
		for _, chunk := range []int{1, 7, 1000, 1024, 5000, 1 << 20} {
			var got tail
			for rest := c.written; rest != ""; {
				n := min(chunk, len(rest))
				if wrote, err := got.Write([]byte(rest[:n])); wrote != n || err != nil {
					t.Fatalf("%s: wrote %d, %v", c.name, wrote, err)
				}
				rest = rest[n:]
			}
			if s := got.String(); s != c.want || len(s) > 1024 || !utf8.ValidString(s) {
				t.Errorf("%s in chunks of %d: got %d bytes %q, want %q", c.name, chunk, len(s), s, c.want)
			}
		}
	}
}
