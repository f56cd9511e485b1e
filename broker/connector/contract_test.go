package connector

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vectors are examples of the contract, made elsewhere.
type vectors struct {
	Tokens []struct {
		Secret, Payload, Token string
		Exp                    int64
	}
	Deliveries []struct {
		Secret, Body, Signature string
		Timestamp               int64
	}
	Frames struct {
		ToConnector   []json.RawMessage `json:"relay_to_connector"`
		FromConnector []json.RawMessage `json:"connector_to_relay"`
		Stripped      json.RawMessage   `json:"stripped_event_of_the_inbound_above"`
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/contract.json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil || len(v.Tokens) == 0 || len(v.Deliveries) == 0 || len(v.Frames.FromConnector) == 0 {
		t.Fatalf("testdata/contract.json: %v", err)
	}
	return v
}

// value is JSON as any reader sees it.
func value(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func TestTokenVectors(t *testing.T) {
	for _, v := range readVectors(t).Tokens {
		if got := SignToken(v.Secret, v.Payload, v.Exp); got != v.Token {
			t.Errorf("the token of %s is %s", v.Payload, got)
		}
		now := time.Unix(v.Exp, 999)
		if payload, err := VerifyToken(v.Token, []string{"", "another", v.Secret, "third"}, now); payload != v.Payload || err != nil {
			t.Errorf("%s: %q, %v", v.Payload, payload, err)
		}
		_, err := VerifyToken(v.Token, []string{v.Secret}, now.Add(time.Second))
		if want := v.Exp != 0; errors.Is(err, ErrExpired) != want {
			t.Errorf("%s a second later: %v", v.Payload, err)
		}
		if _, err := VerifyToken(v.Token, []string{"another"}, now.Add(time.Second)); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s of another secret: %v", v.Payload, err)
		}
	}
}

func TestTokensRefused(t *testing.T) {
	good := SignToken("secret", "gw", 0)
	signed := func(text string) string { return encode(text + ":" + hexMAC("secret", text)) }
	for name, c := range map[string]struct {
		token   string
		secrets []string
	}{
		"no secrets":        {good, nil},
		"a blank secret":    {encode("gw:0:" + hexMAC(" ", "gw:0")), []string{" "}},
		"padding":           {SignToken("secret", "gw1", 0) + "=", []string{"secret"}},
		"a newline":         {good[:4] + "\n" + good[4:], []string{"secret"}},
		"no base64":         {"%" + good, []string{"secret"}},
		"no colon":          {encode("gw"), []string{"secret"}},
		"one colon":         {encode("0:" + hexMAC("secret", "0")), []string{"secret"}},
		"capitals":          {encode("gw:0:" + "ABCDEF"), []string{"secret"}},
		"a negative expiry": {signed("gw:-1"), []string{"secret"}},
		"an expiry of text": {signed("gw:soon"), []string{"secret"}},
		"no expiry":         {signed("gw:"), []string{"secret"}},
		"empty":             {"", []string{"secret"}},
	} {
		if _, err := VerifyToken(c.token, c.secrets, time.Unix(1, 0)); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := VerifyToken(good, []string{"secret"}, time.Unix(1, 0)); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestTokenMinter(t *testing.T) {
	m, err := NewTokenMinter("secret", "gw:1", DefaultTokenTTL)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Mint(time.Unix(1000, 0)), SignToken("secret", "gw:1", 1300); got != want {
		t.Errorf("minted %s, want %s", got, want)
	}
	for _, bad := range []struct {
		secret, gateway string
		ttl             time.Duration
	}{{" \t", "gw", time.Second}, {"", "gw", time.Second}, {"s", "", time.Second}, {"s", "gw", 0}, {"s", "gw", -time.Second}, {"s", "gw", 1500 * time.Millisecond}} {
		if _, err := NewTokenMinter(bad.secret, bad.gateway, bad.ttl); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestDeliveryVectors(t *testing.T) {
	for _, v := range readVectors(t).Deliveries {
		stamp, body := strconv.FormatInt(v.Timestamp, 10), []byte(v.Body)
		if got := SignDelivery(v.Secret, stamp, body); got != v.Signature {
			t.Errorf("the signature is %s", got)
		}
		verifier, err := NewDeliveryVerifier([]string{"another", v.Secret}, DefaultDeliverySkew)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(v.Timestamp, 0)
		for away, want := range map[time.Duration]error{0: nil, 300999 * time.Millisecond: nil, 301 * time.Second: ErrSkew, -300 * time.Second: nil, -301 * time.Second: ErrSkew} {
			if err := verifier.Verify(stamp, v.Signature, body, at.Add(away)); !errors.Is(err, want) {
				t.Errorf("%v away: %v", away, err)
			}
		}
		for _, bad := range [][3]string{{stamp, v.Signature, v.Body + " "}, {stamp + "0", v.Signature, v.Body}, {"", v.Signature, v.Body}, {"-1", v.Signature, v.Body}, {stamp, "", v.Body}} {
			if err := verifier.Verify(bad[0], bad[1], []byte(bad[2]), at); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if in, err := ParseDelivery(body); err != nil || !isObject(in.Event) || in.BufferID != "" {
			t.Errorf("%+v, %v", in, err)
		}
	}
	if in, err := ParseDelivery([]byte(`{"bufferId":"b","event":{"source":{"deliveredViaUpstreamRelay":1}}}`)); err != nil || in.BufferID != "b" || string(in.Event) != `{"source":{}}` {
		t.Errorf("%+v, %v", in, err)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"event":"x"}`, `{"event":{},"bufferId":1}`} {
		if _, err := ParseDelivery([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	for _, bad := range []struct {
		keys []string
		skew time.Duration
	}{{nil, 1}, {[]string{"k", " "}, 1}, {[]string{"k"}, 0}, {[]string{"k"}, -1}} {
		if _, err := NewDeliveryVerifier(bad.keys, bad.skew); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Each example is read, and what is written of it says the same, but for what
// is stripped.
func TestFrameVectors(t *testing.T) {
	v := readVectors(t)
	for _, raw := range append(v.Frames.ToConnector, v.Frames.FromConnector...) {
		frame, err := ParseFrame(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		want := value(t, raw)
		switch f := frame.(type) {
		case Unknown:
			t.Errorf("%s is not known", raw)
		case Inbound:
			want.(map[string]any)["event"] = value(t, v.Frames.Stripped)
		case Passthrough:
			if string(f.Body) != `{"type":2}` {
				t.Errorf("the body is %q", f.Body)
			}
		}
		if diff := cmp.Diff(want, value(t, frame.AppendJSON(nil))); diff != "" {
			t.Error(diff)
		}
	}
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
