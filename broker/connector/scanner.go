package connector

// scanner follows one JSON object (RFC 8259) byte by byte, and knows after
// each whether the object is complete, may still become complete, or cannot.
// The zero value is ready. It does not look at the encoding of strings.
type scanner struct {
	state scanState
	// open are the objects and arrays around the next byte.
	open []byte
	// key is whether the string that is being read names a member.
	key bool
	// rest are the letters of a literal, or the hexadecimal digits of an
	// escape, that are to follow.
	rest string
}

type scanState uint8

const (
	atStart    scanState = iota // before the object
	atFirstKey                  // after {
	atKey                       // after a comma in an object
	atColon                     // after a key
	atFirst                     // after [
	atValue                     // before a value
	afterValue                  // after a value, inside something
	inString
	inEscape
	inHex
	inLiteral
	inMinus    // after -
	inZero     // after a leading 0
	inInteger  // among the digits of an integer
	atDecimal  // after the point
	inDecimals // among decimals
	atExponent // after e
	inSign     // after e+ or e-
	inExponent // among the digits of an exponent
	complete
	impossible
)

// maxOpen is how deep encoding/json reads.
const maxOpen = 10000

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// feed follows some bytes.
func (s *scanner) feed(data []byte) {
	for i := 0; i < len(data) && s.state != impossible; i++ {
		s.step(data[i])
	}
}

func (s *scanner) step(c byte) {
	switch s.state {
	case inString:
		s.inString(c)
		return
	case inEscape, inHex, inLiteral:
		s.expect(c)
		return
	case inMinus, inZero, inInteger, atDecimal, inDecimals, atExponent, inSign, inExponent:
		if s.number(c) {
			return
		}
	}
	if isSpace(c) && s.state != impossible {
		return
	}
	s.structure(c)
}

func (s *scanner) structure(c byte) {
	switch {
	case s.state == atStart && c == '{':
		s.begin(c)
	case s.state == atFirstKey && c == '}', s.state == atFirst && c == ']':
		s.end(c)
	case (s.state == atFirstKey || s.state == atKey) && c == '"':
		s.state, s.key = inString, true
	case s.state == atColon && c == ':':
		s.state = atValue
	case s.state == atValue || s.state == atFirst:
		s.value(c)
	case s.state == afterValue && c == ',':
		if s.open[len(s.open)-1] == '{' {
			s.state = atKey
		} else {
			s.state = atValue
		}
	case s.state == afterValue && (c == '}' || c == ']'):
		s.end(c)
	default:
		s.state = impossible
	}
}

func (s *scanner) begin(c byte) {
	if len(s.open) == maxOpen {
		s.state = impossible
		return
	}
	s.open = append(s.open, c)
	if s.state = atFirst; c == '{' {
		s.state = atFirstKey
	}
}

// end closes what is open, which c must fit.
func (s *scanner) end(c byte) {
	top := s.open[len(s.open)-1]
	if c == '}' != (top == '{') {
		s.state = impossible
		return
	}
	s.open = s.open[:len(s.open)-1]
	if s.state = afterValue; len(s.open) == 0 {
		s.state = complete
	}
}

func (s *scanner) value(c byte) {
	switch {
	case c == '{' || c == '[':
		s.begin(c)
	case c == '"':
		s.state, s.key = inString, false
	case c == '-':
		s.state = inMinus
	case c == '0':
		s.state = inZero
	case isDigit(c):
		s.state = inInteger
	case c == 't':
		s.state, s.rest = inLiteral, "rue"
	case c == 'f':
		s.state, s.rest = inLiteral, "alse"
	case c == 'n':
		s.state, s.rest = inLiteral, "ull"
	default:
		s.state = impossible
	}
}

func (s *scanner) inString(c byte) {
	switch {
	case c == '"' && s.key:
		s.state = atColon
	case c == '"':
		s.state = afterValue
	case c == '\\':
		s.state = inEscape
	case c < 0x20:
		s.state = impossible
	}
}

// expect follows what admits few bytes: escapes and literals.
func (s *scanner) expect(c byte) {
	switch s.state {
	case inEscape:
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.state = inString
		case 'u':
			s.state, s.rest = inHex, "xxxx"
		default:
			s.state = impossible
		}
	case inHex:
		if !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			s.state = impossible
		} else if s.rest = s.rest[1:]; s.rest == "" {
			s.state = inString
		}
	default:
		if c != s.rest[0] {
			s.state = impossible
		} else if s.rest = s.rest[1:]; s.rest == "" {
			s.state = afterValue
		}
	}
}

// number follows a number. It returns false at the byte after it, which is
// then still to be read.
func (s *scanner) number(c byte) bool {
	next := impossible
	switch s.state {
	case inMinus:
		if next = inInteger; c == '0' {
			next = inZero
		} else if !isDigit(c) {
			next = impossible
		}
	case inZero, inInteger:
		switch {
		case isDigit(c) && s.state == inInteger:
			next = inInteger
		case c == '.':
			next = atDecimal
		case c == 'e' || c == 'E':
			next = atExponent
		default:
			s.state = afterValue
			return false
		}
	case atDecimal, inDecimals:
		switch {
		case isDigit(c):
			next = inDecimals
		case s.state == inDecimals && (c == 'e' || c == 'E'):
			next = atExponent
		case s.state == inDecimals:
			s.state = afterValue
			return false
		}
	default: // atExponent, inSign, inExponent
		switch {
		case isDigit(c):
			next = inExponent
		case s.state == atExponent && (c == '+' || c == '-'):
			next = inSign
		case s.state == inExponent:
			s.state = afterValue
			return false
		}
	}
	s.state = next
	return true
}
