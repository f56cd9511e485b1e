package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Whichever key fits, all that are good are tried, and no other.
func TestEveryGoodKeyIsTried(t *testing.T) {
	f := newFixture(t)
	now := f.clock.Now()
	keys := []*ownKey{
		{Key: store.Key{ID: "1", Secret: "first"}},
		{Key: store.Key{ID: "2", Secret: "ended", NotAfter: now}},
		{Key: store.Key{ID: "3", Secret: "second", NotAfter: now.Add(time.Millisecond)}},
		{Key: store.Key{ID: "4", Secret: "third"}},
	}
	for _, fitting := range []string{"first", "ended", "second", "third", f.options.Secret} {
		var tried []string
		secret, key, ok := f.signer(keys, now, func(secret string) bool {
			tried = append(tried, secret)
			return secret == fitting
		})
		if want := []string{"first", "second", "third"}; !slices.Equal(tried, want) {
			t.Errorf("%s: tried %q, want %q", fitting, tried, want)
		}
		want := slices.Contains(tried, fitting)
		if ok != want || ok && (secret != fitting || string(key.Secret) != fitting) {
			t.Errorf("%s: found %q, %v", fitting, secret, ok)
		}
	}
}

// An agent's keys cost those nothing who have none.
func BenchmarkVerify(b *testing.B) {
	f := newFixture(b)
	for _, keys := range []int{0, 1, 5} {
		name, secret := fmt.Sprint("agent-", keys), f.options.Secret
		for i := range keys {
			k, err := Key{}, error(nil)
			if i == 0 {
				k, err = f.AddAgent(ctx, name, AgentPatch{})
			} else {
				k, err = f.AddKey(ctx, name, time.Time{})
			}
			f.must(err)
			secret = k.Secret
		}
		_, err := f.Register(ctx, name)
		f.must(err)
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			now := fmt.Sprint(f.clock.Now().Unix())
			given := Credentials{
				Agent: name, Timestamp: now, Address: "192.0.2.1",
				Signature: agentrelay.Sign(secret, "GET", "/peers", now, nil),
			}
			b.ReportAllocs()
			for range b.N {
				c, err := f.Challenge(given)
				if err == nil {
					_, err = c.Verify("GET", "/peers", nil)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
