package broker

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// Bytes of what is random in a key; both are written in hexadecimal.
const (
	keyIDBytes  = 8
	secretBytes = 32
)

// AddKey gives an agent one more key, good until notAfter, or for ever if that
// is zero. CodeNoSuchAgent; CodeBadRequest if store.MaxKeys are good already.
func (b *Broker) AddKey(ctx context.Context, name string, notAfter time.Time) (Key, error) {
	if !notAfter.IsZero() && !notAfter.After(b.options.Clock.Now()) {
		return Key{}, badRequest("a key cannot end in the past; see the clocks of both sides")
	}
	return b.giveKey(ctx, name, notAfter, func(ctx context.Context, k store.Key) (store.Agent, error) {
		return b.store.AddKey(ctx, name, k)
	})
}

// RotateKey gives an agent a new key, and ends its others after overlap, unless
// they end sooner; at once if it is 0. Errors as AddKey.
func (b *Broker) RotateKey(ctx context.Context, name string, overlap time.Duration) (Key, error) {
	if overlap < 0 {
		return Key{}, badRequest("the overlap must not be negative; 0 ends the old keys at once")
	}
	return b.giveKey(ctx, name, time.Time{}, func(ctx context.Context, k store.Key) (store.Agent, error) {
		return b.store.RotateKey(ctx, name, k, b.options.Clock.Now().Add(overlap))
	})
}

// RevokeKey ends a key at once. An agent whose last key that was is let in no
// more until it gets another. CodeNoSuchAgent; CodeBadRequest if it does not
// have this key.
func (b *Broker) RevokeKey(ctx context.Context, name, keyID string) error {
	err := b.administer(ctx, name, func(ctx context.Context) (store.Agent, error) {
		return b.store.RevokeKey(ctx, name, keyID)
	})
	if err == nil {
		b.audit.Info("key revoked", "agent", name, "key", keyID)
	}
	return err
}

// giveKey makes a key, and has give store it.
func (b *Broker) giveKey(
	ctx context.Context, name string, notAfter time.Time, give func(context.Context, store.Key) (store.Agent, error),
) (Key, error) {
	if b.options.Reserved[name] {
		return Key{}, &agentrelay.Error{
			Code: agentrelay.CodeForbidden, Message: fmt.Sprintf("%q is the broker's own; it needs no key", name),
		}
	}
	random := make([]byte, keyIDBytes+secretBytes)
	if _, err := io.ReadFull(b.options.Random, random); err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	k := store.Key{
		ID:     hex.EncodeToString(random[:keyIDBytes]),
		Secret: store.Secret(hex.EncodeToString(random[keyIDBytes:])),
	}
	if !notAfter.IsZero() {
		k.NotAfter = time.UnixMilli(notAfter.UnixMilli()) // as it is stored
	}
	if err := b.administer(ctx, name, func(ctx context.Context) (store.Agent, error) {
		return give(ctx, k)
	}); err != nil {
		return Key{}, err
	}
	b.audit.Info("key made", "agent", name, "key", k.ID, "not_after", k.NotAfter)
	return Key{Agent: name, ID: k.ID, Secret: string(k.Secret), NotAfter: k.NotAfter}, nil
}
