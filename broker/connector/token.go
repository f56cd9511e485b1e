package connector

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultTokenTTL is how long a token is valid unless a config says otherwise.
const DefaultTokenTTL = 300 * time.Second

// CloseUnauthorized is the close code with which a connector refuses a token.
const CloseUnauthorized = 4401

// Why a token is refused. Their texts are the reasons of a close with
// CloseUnauthorized.
var (
	ErrUnauthorized = errors.New("unauthorized")
	ErrExpired      = errors.New("expired")
)

// SignToken makes a token that is valid up to and including the Unix second
// exp, 0 being for ever. The payload is the gateway's id and may hold colons.
func SignToken(secret, payload string, exp int64) string {
	signed := payload + ":" + strconv.FormatInt(exp, 10)
	return base64.RawURLEncoding.EncodeToString([]byte(signed + ":" + hexMAC(secret, signed)))
}

// VerifyToken returns a token's payload if one of the secrets signed it and it
// is still valid at now. All secrets are compared with, in constant time; blank
// ones never match. It fails with ErrUnauthorized, or with ErrExpired when
// nothing but the time is wrong.
func VerifyToken(token string, secrets []string, now time.Time) (payload string, err error) {
	if strings.ContainsAny(token, "\r\n") { // which the decoder would skip
		return "", ErrUnauthorized
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return "", ErrUnauthorized
	}
	text := string(raw)
	last := strings.LastIndexByte(text, ':')
	if last < 0 {
		return "", ErrUnauthorized
	}
	signed, signature := text[:last], text[last+1:]
	colon := strings.LastIndexByte(signed, ':')
	if colon < 0 || !signedByOne(secrets, signed, signature) {
		return "", ErrUnauthorized
	}
	exp, err := strconv.ParseUint(signed[colon+1:], 10, 63)
	if err != nil {
		return "", ErrUnauthorized
	}
	if exp != 0 && now.Unix() > int64(exp) {
		return "", ErrExpired
	}
	return signed[:colon], nil
}

// TokenMinter makes the tokens of one gateway.
type TokenMinter struct {
	secret, gatewayID string
	ttl               time.Duration
}

// NewTokenMinter refuses a blank secret, an empty gateway id and a time to live
// that is not positive or has a fraction of a second.
func NewTokenMinter(secret, gatewayID string, ttl time.Duration) (*TokenMinter, error) {
	if strings.TrimSpace(secret) == "" {
		return nil, errors.New("the connector's secret is blank")
	}
	if gatewayID == "" {
		return nil, errors.New("the gateway id is empty")
	}
	if ttl <= 0 || ttl%time.Second != 0 {
		return nil, fmt.Errorf("the tokens' time to live is %v; it must be a whole number of seconds, at least 1", ttl)
	}
	return &TokenMinter{secret, gatewayID, ttl}, nil
}

// Mint makes a token that is valid from now.
func (m *TokenMinter) Mint(now time.Time) string {
	return SignToken(m.secret, m.gatewayID, now.Add(m.ttl).Unix())
}

// signedByOne compares with every secret, whichever matches.
func signedByOne(secrets []string, signed, signature string) bool {
	matches := false
	for _, secret := range secrets {
		if strings.TrimSpace(secret) == "" {
			continue
		}
		if hmac.Equal([]byte(hexMAC(secret, signed)), []byte(signature)) {
			matches = true
		}
	}
	return matches
}

func hexMAC(secret, signed string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	return hex.EncodeToString(mac.Sum(nil))
}
