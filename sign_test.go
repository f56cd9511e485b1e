package agentrelay

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

type vector struct {
	Note, Secret, Method, Target, Timestamp, Body, Signature string

	BodyBase64 []byte `json:"body_base64"`
}

// bytes is the body: text where it can be, else base64.
func (v vector) bytes() []byte {
	if v.BodyBase64 != nil {
		return v.BodyBase64
	}
	return []byte(v.Body)
}

func (v vector) String() string {
	return v.Note + " " + v.Method + " " + v.Target
}

func readVectors(t testing.TB) (good, refused []vector) {
	t.Helper()
	data, err := os.ReadFile("testdata/http-signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors, Refused []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) == 0 || len(file.Refused) == 0 {
		t.Fatal("the file holds no vectors")
	}
	return file.Vectors, file.Refused
}

func TestSignVectors(t *testing.T) {
	good, refused := readVectors(t)
	seen := map[string]vector{}
	for _, v := range good {
		if got := Sign(v.Secret, v.Method, v.Target, v.Timestamp, v.bytes()); got != v.Signature {
			t.Errorf("%v: signature %s, want %s", v, got, v.Signature)
		}
		if !Verify(v.Secret, v.Method, v.Target, v.Timestamp, v.bytes(), v.Signature) {
			t.Errorf("%v: its signature is refused", v)
		}
		if other, ok := seen[v.Signature]; ok {
			t.Errorf("%v has the signature of %v", v, other)
		}
		seen[v.Signature] = v
	}
	for _, v := range refused {
		if Verify(v.Secret, v.Method, v.Target, v.Timestamp, v.bytes(), v.Signature) {
			t.Errorf("%v: %q passes as its signature", v, v.Signature)
		}
	}
}

// A timestamp with a line break would make the signed text ambiguous.
func TestTimestampHoldsNoNewline(t *testing.T) {
	for _, text := range []string{"1\n", "\n1", "1\n2", "1.\n1"} {
		if _, err := ParseTimestamp(text); err == nil {
			t.Errorf("ParseTimestamp(%q) passes", text)
		}
	}
}

func TestParseTimestamp(t *testing.T) {
	for text, want := range map[string]struct {
		seconds, nanos int64
		fractional     bool
	}{
		"0":                      {0, 0, false},
		"1755250000":             {1755250000, 0, false},
		"0001755250":             {1755250, 0, false},
		"999999999999":           {999999999999, 0, false},
		"1755250000.0":           {1755250000, 0, true},
		"1755250000.5":           {1755250000, 5e8, true},
		"1755250000.05":          {1755250000, 5e7, true},
		"1755250000.123456789":   {1755250000, 123456789, true},
		"1755250000.000000001":   {1755250000, 1, true},
		"999999999999.999999999": {999999999999, 999999999, true},
	} {
		got, err := ParseTimestamp(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if !got.Time().Equal(time.Unix(want.seconds, want.nanos)) || got.Fractional() != want.fractional {
			t.Errorf("%q is %v, fractional %v; want %d.%09d, %v", text, got.Time(), got.Fractional(), want.seconds, want.nanos, want.fractional)
		}
	}
}

func TestParseTimestampRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", ".", "1.", ".5", "-1", "+1", "1e9", "1E9", "0x10", "1_000", "1,5", " 1755250000", "1755250000 ",
		"1755250000.", "1755250000.1234567890", "1755250000.5.5", "1755250000.-5", "1755250000.5e1",
		"1755250000\x00", "NaN", "Inf", "１７５５２５００００", "١٧٥٥", "9999999999999",
		strings.Repeat("9", 100), "1." + strings.Repeat("0", 100), "2026-01-01T00:00:00Z",
	} {
		_, err := ParseTimestamp(text)
		want := &Error{Code: CodeUnauthenticated, Reason: ReasonBadTimestamp}
		if !errors.Is(err, want) {
			t.Errorf("ParseTimestamp(%q) = %v, want bad_timestamp", text, err)
		}
	}
}

func TestCheckSkew(t *testing.T) {
	now := time.Unix(1755250000, 0)
	for _, c := range []struct {
		text string
		now  time.Time
		ok   bool
	}{
		{"1755250000", now, true},
		{"1755250300", now, true},
		{"1755250301", now, false},
		{"1755249700", now, true},
		{"1755249699", now, false},
		// Whole seconds are compared with the clock cut to seconds.
		{"1755249700", now.Add(time.Second - 1), true},
		{"1755249699", now.Add(time.Second - 1), false},
		{"1755250300", now.Add(time.Second - 1), true},
		{"1755250301", now.Add(time.Second - 1), false},
		{"1755250301", now.Add(time.Second), true},
		// With a fraction the whole instant counts, within 30 s.
		{"1755250000.0", now, true},
		{"1755250030.0", now, true},
		{"1755250030.000000000", now, true},
		{"1755250030.000000001", now, false},
		{"1755249970.0", now, true},
		{"1755249969.999999999", now, false},
		{"1755249970.5", now.Add(time.Second / 2), true},
		{"1755249970.4", now.Add(time.Second / 2), false},
		{"1755250200.0", now, false},
		// Far from any clock, where time.Duration ends.
		{"0", now, false},
		{"0.0", now, false},
		{"999999999999", now, false},
		{"999999999999.9", now, false},
	} {
		stamp, err := ParseTimestamp(c.text)
		if err != nil {
			t.Fatal(err)
		}
		err = stamp.CheckSkew(c.now)
		if (err == nil) != c.ok {
			t.Errorf("%s at %v: %v, want ok %v", c.text, c.now.UnixNano(), err, c.ok)
		}
		if err != nil && !errors.Is(err, &Error{Code: CodeUnauthenticated, Reason: ReasonTimestampSkew}) {
			t.Errorf("%s: %v is not timestamp_skew", c.text, err)
		}
	}
}

func TestCheckSkewTellsTheClock(t *testing.T) {
	now := time.Unix(1755250000, 250_000_000)
	stamp, err := ParseTimestamp("1755249000")
	if err != nil {
		t.Fatal(err)
	}
	var e *Error
	if !errors.As(stamp.CheckSkew(now), &e) {
		t.Fatal("a timestamp 1000 s old passes")
	}
	if !e.ServerTime.Equal(now) || e.Skew != -1000250*time.Millisecond {
		t.Errorf("server time %v, skew %v", e.ServerTime, e.Skew)
	}
	if !strings.Contains(e.Message, "-1000.2 s") || !strings.Contains(e.Message, "300 s") {
		t.Errorf("message %q", e.Message)
	}
}

func FuzzVerify(f *testing.F) {
	good, refused := readVectors(f)
	for _, v := range append(good, refused...) {
		f.Add(v.Secret, v.Method, v.Target, v.Timestamp, v.bytes(), v.Signature)
	}
	f.Fuzz(func(t *testing.T, secret, method, target, timestamp string, body []byte, signature string) {
		want := Sign(secret, method, target, timestamp, body)
		if len(want) != 64 || strings.Trim(want, "0123456789abcdef") != "" {
			t.Fatalf("signature %q", want)
		}
		if !Verify(secret, method, target, timestamp, body, want) {
			t.Fatal("its own signature is refused")
		}
		if Verify(secret, method, target, timestamp, body, signature) != (signature == want) {
			t.Fatalf("signature %q: want only %q to pass", signature, want)
		}
	})
}

func FuzzParseTimestamp(f *testing.F) {
	for _, text := range []string{
		"1755250000", "1755250000.5", "1755250000.123456789", "0", "0.0", "999999999999.999999999",
		"", ".", "1.", ".1", "-1", "+1", "1e9", "0x1", "1.1234567890", "9999999999999", "1 ", "1\n", "１",
	} {
		f.Add(text, int64(1755250000))
	}
	f.Fuzz(func(t *testing.T, text string, now int64) {
		stamp, err := ParseTimestamp(text)
		if err != nil {
			if !errors.Is(err, ErrUnauthenticated) {
				t.Fatalf("%v is not unauthenticated", err)
			}
			return
		}
		if strings.Trim(text, "0123456789.") != "" || len(text) > 12+1+9 || strings.Count(text, ".") > 1 {
			t.Fatalf("%q passes", text)
		}
		if stamp.Fractional() != strings.Contains(text, ".") {
			t.Fatalf("%q: fractional %v", text, stamp.Fractional())
		}
		if now < 0 || now > 1e11 {
			return
		}
		_ = stamp.CheckSkew(time.Unix(now, 0))
		if err := stamp.CheckSkew(stamp.Time()); err != nil {
			t.Fatalf("%q is refused at its own time: %v", text, err)
		}
	})
}

func TestSignAnswerVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/http-signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Responses []struct {
			Secret, Body, Signature string
			Status                  int
			RequestSignature        string `json:"request_signature"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Responses) == 0 {
		t.Fatal("the file holds no answers")
	}
	for _, v := range file.Responses {
		body := []byte(v.Body)
		if got := SignAnswer(v.Secret, v.RequestSignature, v.Status, body); got != v.Signature {
			t.Errorf("%+v: signature %s", v, got)
		}
		if !VerifyAnswer(v.Secret, v.RequestSignature, v.Status, body, v.Signature) {
			t.Errorf("%+v: its signature is refused", v)
		}
		for name, ok := range map[string]bool{
			"another secret":  VerifyAnswer(v.Secret+"x", v.RequestSignature, v.Status, body, v.Signature),
			"another request": VerifyAnswer(v.Secret, strings.Repeat("0", 64), v.Status, body, v.Signature),
			"another status":  VerifyAnswer(v.Secret, v.RequestSignature, v.Status+1, body, v.Signature),
			"another body":    VerifyAnswer(v.Secret, v.RequestSignature, v.Status, append(body, ' '), v.Signature),
			"upper case":      VerifyAnswer(v.Secret, v.RequestSignature, v.Status, body, strings.ToUpper(v.Signature)),
			"none":            VerifyAnswer(v.Secret, v.RequestSignature, v.Status, body, ""),
		} {
			if ok {
				t.Errorf("%+v: accepted with %s", v, name)
			}
		}
	}
}
