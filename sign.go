package agentrelay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Names of the headers that authenticate a request (PROTOCOL.md, "Signature").
const (
	HeaderAgent     = "X-Relay-Agent"
	HeaderTimestamp = "X-Relay-Timestamp"
	HeaderSignature = "X-Relay-Signature"
)

// How far a request's timestamp may be from the broker's clock. Exactly this
// far still passes.
const (
	MaxSkew           = 300 * time.Second
	MaxFractionalSkew = 30 * time.Second
)

// Sign returns the signature of a request: lower-case hex of
// HMAC-SHA256(secret, METHOD \n request-target \n timestamp \n body)
// (RFC 2104, FIPS 180-4). target stands exactly as on the request line, query
// included; timestamp is the literal text of its header; body is the bytes
// that are sent.
func Sign(secret, method, target, timestamp string, body []byte) string {
	sum := signature(secret, method, target, timestamp, body)
	return hex.EncodeToString(sum[:])
}

// Verify reports in constant time whether sig is the request's signature.
// Only lower-case hex is one.
func Verify(secret, method, target, timestamp string, body []byte, sig string) bool {
	sum := signature(secret, method, target, timestamp, body)
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], sum[:])
	return hmac.Equal(want[:], []byte(sig))
}

// SignAnswer returns the signature of an answer: lower-case hex of
// HMAC-SHA256(secret, "response" \n request's signature \n status \n body),
// with the secret that the request was signed with and the bytes of the body as
// they are sent. It ties the answer to that request, and shows that who answers
// knows the secret.
func SignAnswer(secret, requestSignature string, status int, body []byte) string {
	// No request has this form: its target begins with a slash.
	return Sign(secret, answerMethod, requestSignature, strconv.Itoa(status), body)
}

// VerifyAnswer reports in constant time whether sig is the signature of the
// answer to the request with that signature.
func VerifyAnswer(secret, requestSignature string, status int, body []byte, sig string) bool {
	return Verify(secret, answerMethod, requestSignature, strconv.Itoa(status), body, sig)
}

const answerMethod = "response"

func signature(secret, method, target, timestamp string, body []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, []byte(secret))
	head := make([]byte, 0, 256)
	head = append(head, method...)
	head = append(head, '\n')
	head = append(head, target...)
	head = append(head, '\n')
	head = append(head, timestamp...)
	head = append(head, '\n')
	mac.Write(head)
	mac.Write(body)
	var sum [sha256.Size]byte
	mac.Sum(sum[:0])
	return sum
}

// Timestamp is a request's timestamp: Unix time with up to nine decimals.
type Timestamp struct {
	time       time.Time
	fractional bool
}

// ParseTimestamp reads decimal Unix seconds with an optional fraction of one
// to nine digits. No sign, exponent, space or other base is accepted.
func ParseTimestamp(text string) (Timestamp, error) {
	whole, fraction, fractional := strings.Cut(text, ".")
	if len(whole) > 12 || !allDigits(whole) || fractional && (len(fraction) > 9 || !allDigits(fraction)) {
		return Timestamp{}, &Error{
			Code: CodeUnauthenticated, Reason: ReasonBadTimestamp,
			Message: HeaderTimestamp + " must be decimal Unix seconds, such as 1755250000 or 1755250000.123456789",
		}
	}
	seconds, _ := strconv.ParseInt(whole, 10, 64)
	var nanos int64
	if fractional {
		nanos, _ = strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	}
	return Timestamp{time: time.Unix(seconds, nanos), fractional: fractional}, nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Fractional reports whether the timestamp was written with a fraction.
func (t Timestamp) Fractional() bool { return t.fractional }

// Time is the instant the timestamp names.
func (t Timestamp) Time() time.Time { return t.time }

// CheckSkew refuses a timestamp too far from now: more than MaxSkew for whole
// seconds, compared with now cut to seconds; more than MaxFractionalSkew for
// timestamps with a fraction.
func (t Timestamp) CheckSkew(now time.Time) error {
	limit, clock := MaxSkew, time.Unix(now.Unix(), 0)
	if t.fractional {
		limit, clock = MaxFractionalSkew, now
	}
	skew := t.time.Sub(clock)
	if -limit <= skew && skew <= limit {
		return nil
	}
	exact := t.time.Sub(now)
	return &Error{
		Code: CodeUnauthenticated, Reason: ReasonTimestampSkew,
		Message:    fmt.Sprintf("the request's timestamp is %.1f s off the broker's clock, more than the %d s allowed; correct the clock and sign again", exact.Seconds(), int(limit.Seconds())),
		ServerTime: now, Skew: exact,
	}
}
