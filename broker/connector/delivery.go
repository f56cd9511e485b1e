package connector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Names of the headers that sign an event posted over HTTP.
const (
	HeaderDeliveryTimestamp = "X-Relay-Timestamp"
	HeaderDeliverySignature = "X-Relay-Signature"
)

// DefaultDeliverySkew is how far a delivery's timestamp may be from the clock.
const DefaultDeliverySkew = 300 * time.Second

// ErrSkew refuses a delivery that is well signed, but too old or too new.
var ErrSkew = errors.New("the delivery's timestamp is too far from the clock")

// SignDelivery signs the body of a delivery; timestamp is Unix seconds as
// they stand in the header.
func SignDelivery(key, timestamp string, body []byte) string {
	return hexMAC(key, timestamp+"."+string(body))
}

// DeliveryVerifier checks what connectors post.
type DeliveryVerifier struct {
	keys []string
	skew time.Duration
}

// NewDeliveryVerifier takes all keys that may sign. It refuses blank keys, no
// keys at all, and a skew that is not positive.
func NewDeliveryVerifier(keys []string, skew time.Duration) (*DeliveryVerifier, error) {
	if len(keys) == 0 {
		return nil, errors.New("there is no delivery key")
	}
	for i, key := range keys {
		if strings.TrimSpace(key) == "" {
			return nil, fmt.Errorf("delivery key %d is blank", i+1)
		}
	}
	if skew <= 0 {
		return nil, fmt.Errorf("the skew allowed for deliveries is %v; it must be more than 0", skew)
	}
	return &DeliveryVerifier{keys, skew}, nil
}

// Verify checks a delivery by its two headers and its body as received. Exactly
// the allowed skew passes. It fails with ErrUnauthorized or ErrSkew.
func (v *DeliveryVerifier) Verify(timestamp, signature string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil || !signedByOne(v.keys, timestamp+"."+string(body), signature) {
		return ErrUnauthorized
	}
	if away := now.Truncate(time.Second).Sub(time.Unix(int64(seconds), 0)); away > v.skew || away < -v.skew {
		return ErrSkew
	}
	return nil
}

// ParseDelivery reads the body of a delivery: the event of an inbound frame,
// with or without a bufferId. The event is stripped as StripTrust does.
func ParseDelivery(body []byte) (Inbound, error) {
	o, err := parseObject(body)
	if err != nil {
		return Inbound{}, fmt.Errorf("read a delivery: %w", err)
	}
	f, err := parseInbound(o)
	if err != nil {
		return Inbound{}, fmt.Errorf("read a delivery: %w", err)
	}
	return f, nil
}
