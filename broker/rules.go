package broker

import "time"

// ReloadOptions are those of a broker's options that may change while it runs.
// All others need a restart: above all the secret, the TTL and the store.
type ReloadOptions struct {
	AllowedTargets   map[string][]string
	RequireAgentKeys bool
	RequireSingleUse bool
	Heartbeat        time.Duration
	Lockout          Lockout
}

func (o *Options) reloadable() ReloadOptions {
	return ReloadOptions{
		AllowedTargets: o.AllowedTargets, RequireAgentKeys: o.RequireAgentKeys, RequireSingleUse: o.RequireSingleUse,
		Heartbeat: o.Heartbeat, Lockout: o.Lockout,
	}
}

// Reload changes what may change. Requests that passed a check already are not
// judged again, and agents that are locked stay locked for their time.
func (b *Broker) Reload(o ReloadOptions) {
	b.rules.Store(&o)
	b.lockout.set(o.Lockout)
	b.registry.setHeartbeat(o.Heartbeat)
	b.audit.Info("config reloaded")
}
