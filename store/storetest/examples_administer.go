package storetest

import (
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// aKey is a key that never ends.
func aKey(id string) store.Key { return store.Key{ID: id, Secret: store.Secret("secret of " + id)} }

// set is a patch that sets one value.
func set[T any](value T) store.Patch[T] { return store.Patch[T]{Set: true, Value: &value} }

// one returns what the store keeps of a registered agent.
func (f *fixture) one(name string) store.Agent {
	f.testing.Helper()
	agents, err := f.store.Agents(ctx)
	f.must(err)
	for _, a := range agents {
		if a.Name == name {
			return a
		}
	}
	f.testing.Fatalf("%s is not registered", name)
	return store.Agent{}
}

func (f *fixture) addAgent(name string, p store.AgentPatch, k store.Key) store.Agent {
	f.testing.Helper()
	a, err := f.store.AddAgent(ctx, name, p, k)
	f.must(err)
	return a
}

func (f *fixture) update(p store.AgentPatch) store.Agent {
	f.testing.Helper()
	a, err := f.store.UpdateAgent(ctx, ben, p)
	f.must(err)
	return a
}

var administerExamples = []example{
	{"an agent that was added is registered, and has what was set", func(f *fixture) {
		f.clock.Advance(time.Minute)
		p := store.AgentPatch{Description: set("a ghost"), AllowedTargets: set([]string{ann}), MaxQueued: set(int64(7))}
		want := store.Agent{
			Name: ghost, Description: "a ghost", AllowedTargets: []string{ann}, MaxQueued: 7, Keyed: true,
			Keys: []store.Key{{ID: "k1", Secret: "secret of k1", Created: f.clock.Now()}},
		}
		f.wantEqual("answer", f.addAgent(ghost, p, aKey("k1")), want)
		f.reopen(0)
		f.wantEqual("agent", f.one(ghost), want)
		m := message("m1")
		m.To = ghost
		f.enqueue(m)
	}},
	{"one that is registered gets its first key when it is added", func(f *fixture) {
		f.send("m1")
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		f.wantInbox(ben, "m1")
		f.wantEqual("keyed", f.one(ben).Keyed, true)
	}},
	{"one that was given keys is not added, and nothing of it changes", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		want := f.one(ben)
		_, err := f.store.AddAgent(ctx, ben, store.AgentPatch{Description: set("other")}, aKey("k2"))
		f.wantError(err, agentrelay.ErrBadRequest)
		f.wantEqual("agent", f.one(ben), want)
		_, err = f.store.RevokeKey(ctx, ben, "k1")
		f.must(err)
		_, err = f.store.AddAgent(ctx, ben, store.AgentPatch{}, aKey("k2"))
		f.wantError(err, agentrelay.ErrBadRequest)
	}},
	{"a patch leaves, sets and removes", func(f *fixture) {
		f.update(store.AgentPatch{Description: set("text"), AllowedTargets: set([]string{ann, zoe}), MaxQueued: set(int64(3))})
		want := store.Agent{Name: ben, LastSeen: start, Description: "text", AllowedTargets: []string{ann, zoe}, MaxQueued: 3}
		f.wantEqual("after nothing", f.update(store.AgentPatch{}), want)
		want.Description = ""
		f.wantEqual("without description", f.update(store.AgentPatch{Description: store.Patch[string]{Set: true}}), want)
		want.MaxQueued = 0
		f.wantEqual("without limit", f.update(store.AgentPatch{MaxQueued: store.Patch[int64]{Set: true}}), want)
		f.reopen(0)
		f.wantEqual("agent", f.one(ben), want)
	}},
	{"no targets are not all targets", func(f *fixture) {
		for _, none := range []store.Patch[[]string]{set([]string{}), set([]string(nil))} {
			f.update(store.AgentPatch{AllowedTargets: none})
			f.reopen(0)
			if list := f.one(ben).AllowedTargets; list == nil || len(list) > 0 {
				f.testing.Fatalf("the targets are %#v, want none", list)
			}
		}
		f.update(store.AgentPatch{AllowedTargets: store.Patch[[]string]{Set: true}})
		f.reopen(0)
		if list := f.one(ben).AllowedTargets; list != nil {
			f.testing.Fatalf("the targets are %#v, want all", list)
		}
	}},
	{"one that was removed is not registered; messages and positions stay", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{Description: set("text"), AllowedTargets: set([]string{ann}), MaxQueued: set(int64(3))}, aKey("k1"))
		f.send("m1", "m2")
		f.must(f.store.RemoveAgent(ctx, ben))
		_, err := f.store.Enqueue(ctx, message("m3"))
		f.wantError(err, agentrelay.ErrNoSuchAgent)
		f.reopen(0)
		agents, err := f.store.Agents(ctx)
		f.must(err)
		f.wantEqual("number of agents", len(agents), 2)
		f.wantInbox(ben, "m1", "m2")
		f.clock.Advance(time.Minute)
		f.must(f.store.Register(ctx, ben))
		f.wantEqual("agent", f.one(ben), store.Agent{
			Name: ben, LastSeen: start.Add(time.Minute), Waiting: 2, WaitingBytes: bodies("m1", "m2"),
		})
		f.send("m4")
		f.wantEqual("cursor", f.poll(ben, "").Cursor, f.cursor(ben, 3))
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
	}},
	{"an agent that is not registered has nothing to change", func(f *fixture) {
		m := message("m1")
		m.From = ghost // has an inbox, for a receipt
		f.enqueue(m)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m1"})
		for name, call := range map[string]func() error{
			"update": func() error { _, err := f.store.UpdateAgent(ctx, ghost, store.AgentPatch{}); return err },
			"remove": func() error { return f.store.RemoveAgent(ctx, ghost) },
			"add":    func() error { _, err := f.store.AddKey(ctx, ghost, aKey("k1")); return err },
			"rotate": func() error { _, err := f.store.RotateKey(ctx, ghost, aKey("k1"), start); return err },
			"revoke": func() error { _, err := f.store.RevokeKey(ctx, ghost, "k1"); return err },
		} {
			if err := call(); err == nil {
				f.testing.Errorf("%s: no error", name)
			} else {
				f.wantError(err, agentrelay.ErrNoSuchAgent)
			}
		}
		f.must(f.store.Used(ctx, map[store.KeyName]time.Time{{Agent: ghost, ID: "k1"}: start}))
	}},
	{"the backlog counts what is queued and leased", func(f *fixture) {
		f.send("m1", "m2", "m3", "m4")
		f.lease(time.Minute)
		f.acknowledge(store.Acknowledgement{Agent: ben, ID: "m2"})
		want := map[string]store.Backlog{ben: {Queued: 2, Leased: 1}, ann: {Queued: 1}}
		all, err := f.store.Backlog(ctx, "")
		f.must(err)
		f.wantEqual("all", all, want)
		for _, name := range []string{ann, ben, zoe} {
			one, err := f.store.Backlog(ctx, name)
			f.must(err)
			f.wantEqual("that of "+name, one, map[string]store.Backlog{name: want[name]})
		}
	}},
}

var keyExamples = []example{
	{"keys outlast a restart, as they were made", func(f *fixture) {
		k := aKey("k1")
		k.NotAfter = start.Add(time.Hour)
		f.addAgent(ben, store.AgentPatch{}, k)
		f.clock.Advance(time.Second)
		got, err := f.store.AddKey(ctx, ben, aKey("k0"))
		f.must(err)
		f.must(f.store.Used(ctx, map[store.KeyName]time.Time{{Agent: ben, ID: "k0"}: f.clock.Now()}))
		want := store.Agent{Name: ben, LastSeen: start, Keyed: true, Keys: []store.Key{
			{ID: "k1", Secret: "secret of k1", Created: start, NotAfter: start.Add(time.Hour)},
			{ID: "k0", Secret: "secret of k0", Created: start.Add(time.Second)},
		}}
		f.wantEqual("answer", got, want)
		want.Keys[1].LastUsed = start.Add(time.Second)
		f.reopen(0)
		f.wantEqual("agent", f.one(ben), want)
	}},
	{"the time of use moves forward only", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		for _, at := range []time.Time{start.Add(time.Minute), start} {
			f.must(f.store.Used(ctx, map[store.KeyName]time.Time{{Agent: ben, ID: "k1"}: at, {Agent: ben, ID: "none"}: at}))
			f.wantEqual("used", f.one(ben).Keys[0].LastUsed, start.Add(time.Minute))
		}
	}},
	{"keys of two agents may have one id", func(f *fixture) {
		f.addAgent(ann, store.AgentPatch{}, aKey("k1"))
		f.addAgent(ben, store.AgentPatch{}, store.Key{ID: "k1", Secret: "another"})
		_, err := f.store.RevokeKey(ctx, ann, "k1")
		f.must(err)
		f.wantEqual("keys of ben", len(f.one(ben).Keys), 1)
	}},
	{"there is room for five that are good", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		for _, id := range []string{"k2", "k3", "k4"} {
			_, err := f.store.AddKey(ctx, ben, aKey(id))
			f.must(err)
		}
		ending := aKey("k5")
		ending.NotAfter = start.Add(time.Hour)
		_, err := f.store.AddKey(ctx, ben, ending)
		f.must(err)
		want := f.one(ben)
		_, err = f.store.AddKey(ctx, ben, aKey("k6"))
		f.wantError(err, agentrelay.ErrBadRequest)
		_, err = f.store.RotateKey(ctx, ben, aKey("k6"), start.Add(time.Millisecond))
		f.wantError(err, agentrelay.ErrBadRequest)
		f.wantEqual("after refusals", f.one(ben), want)
		f.clock.Advance(time.Hour - time.Millisecond)
		_, err = f.store.AddKey(ctx, ben, aKey("k6"))
		f.wantError(err, agentrelay.ErrBadRequest)
		f.clock.Advance(time.Millisecond)
		_, err = f.store.AddKey(ctx, ben, aKey("k6"))
		f.must(err)
	}},
	{"rotation ends the other keys, unless they end sooner", func(f *fixture) {
		sooner, later := aKey("k2"), aKey("k3")
		sooner.NotAfter, later.NotAfter = start.Add(time.Minute), start.Add(48*time.Hour)
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		for _, k := range []store.Key{sooner, later} {
			_, err := f.store.AddKey(ctx, ben, k)
			f.must(err)
		}
		f.clock.Advance(time.Second)
		end := start.Add(24 * time.Hour)
		got, err := f.store.RotateKey(ctx, ben, aKey("k4"), end)
		f.must(err)
		ends := map[string]time.Time{}
		for _, k := range got.Keys {
			ends[k.ID] = k.NotAfter
		}
		f.wantEqual("ends", ends, map[string]time.Time{"k1": end, "k2": sooner.NotAfter, "k3": end, "k4": {}})
	}},
	{"rotation at once makes room", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		for _, id := range []string{"k2", "k3", "k4", "k5"} {
			_, err := f.store.AddKey(ctx, ben, aKey(id))
			f.must(err)
		}
		got, err := f.store.RotateKey(ctx, ben, aKey("k6"), start)
		f.must(err)
		for _, k := range got.Keys {
			f.wantEqual(k.ID+" is good", k.Good(start), k.ID == "k6")
		}
	}},
	{"keys that ended are shown for a day, and go with the next", func(f *fixture) {
		k := aKey("k1")
		k.NotAfter = start.Add(time.Hour)
		f.addAgent(ben, store.AgentPatch{}, k)
		f.clock.Advance(25*time.Hour - time.Millisecond)
		got, err := f.store.AddKey(ctx, ben, aKey("k2"))
		f.must(err)
		f.wantEqual("keys", len(got.Keys), 2)
		f.clock.Advance(time.Millisecond)
		got, err = f.store.RotateKey(ctx, ben, aKey("k3"), start.Add(48*time.Hour))
		f.must(err)
		f.wantEqual("keys", [...]any{len(got.Keys), got.Keys[0].ID}, [...]any{2, "k2"})
	}},
	{"a key that was revoked is gone, and the agent stays keyed", func(f *fixture) {
		f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		_, err := f.store.RevokeKey(ctx, ben, "k2")
		f.wantError(err, agentrelay.ErrBadRequest)
		got, err := f.store.RevokeKey(ctx, ben, "k1")
		f.must(err)
		f.wantEqual("answer", got, store.Agent{Name: ben, LastSeen: start, Keyed: true})
		f.reopen(0)
		f.wantEqual("agent", f.one(ben), got)
		f.must(f.store.Register(ctx, ben))
		f.wantEqual("agent", f.one(ben), got)
	}},
	{"secrets do not print", func(f *fixture) {
		a := f.addAgent(ben, store.AgentPatch{}, aKey("k1"))
		f.wantHidden("secret of k1", a, a.Keys[0], a.Keys[0].Secret)
	}},
}
