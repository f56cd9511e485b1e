package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// Fire runs the scripts of kind and returns when they have ended. The payload
// is a JSON object; null or nothing stands for {}. The scripts get its bytes
// as they are, without the space between them. An event with nothing to run
// does not wait for others. When ctx ends, what runs is killed.
func (d *Dispatcher) Fire(ctx context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
	return d.fire(ctx, d.ordinary.take, kind, payload)
}

// Enforce is Fire for events on whose outcome something depends. It does not
// wait for those that Fire and FireLater run.
func (d *Dispatcher) Enforce(ctx context.Context, kind hook.Kind, payload json.RawMessage) hook.Result {
	return d.fire(ctx, d.enforcing.take, kind, payload)
}

// take waits for a slot, to be given back by release.
type take func(context.Context) (release func(), err error)

func (d *Dispatcher) fire(ctx context.Context, slot take, kind hook.Kind, payload json.RawMessage) hook.Result {
	if err := kind.Err(); err != nil {
		return hook.Failed(hook.BadRequest(err.Error()))
	}
	compact, problem := compacted(payload)
	if problem != "" {
		return hook.Failed(hook.BadRequest(problem))
	}
	d.counters.fired.Add(1)
	r := d.run(ctx, slot, kind, compact)
	d.record(kind, r)
	return r
}

// run does what fire says with a payload that is compact. Where nothing is to
// be run it takes no slot.
func (d *Dispatcher) run(ctx context.Context, slot take, kind hook.Kind, payload []byte) hook.Result {
	before := openTree(d.o.Dir, kind)
	before.close()
	if !before.runs() {
		failures := before.failures()
		return hook.Result{OK: len(failures) == 0, Errors: failures}
	}
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return hook.Failed(hook.Failure{Script: hook.NoScript, Reason: reason(err)})
	}
	defer end()
	release, err := slot(ctx)
	if err != nil {
		return hook.Failed(hook.Failure{Script: hook.NoScript, Reason: reason(err)})
	}
	defer release()
	// Much may have changed while this waited.
	t := openTree(d.o.Dir, kind)
	defer t.close()
	return d.runAll(ctx, t, kind, payload)
}

// runAll runs the scripts of t.
func (d *Dispatcher) runAll(ctx context.Context, t *tree, kind hook.Kind, payload []byte) hook.Result {
	var r hook.Result
	if t.problem() != "" {
		return hook.Failed(t.failures()...)
	}
	r.ID = uuid.Must(uuid.NewV7()).String()
	for _, s := range t.scripts {
		if s.Status == Skipped {
			continue
		}
		run, tried := d.runOne(ctx, t, s.Name, execution{
			env:     append(d.env[:len(d.env):len(d.env)], "AGENT_RELAY_HOOK_KIND="+string(kind), "AGENT_RELAY_HOOK_ID="+r.ID),
			payload: payload,
			timeout: d.o.Timeout,
		})
		if !tried {
			continue
		}
		r.Runs = append(r.Runs, run)
		if f, failed := run.Failure(); failed {
			r.Errors = append(r.Errors, f)
		}
	}
	r.OK = len(r.Errors) == 0
	return r
}

// runOne runs a script if it still may run; one that has gone meanwhile is
// not tried.
func (d *Dispatcher) runOne(ctx context.Context, t *tree, name string, e execution) (run hook.Run, tried bool) {
	if ctx.Err() != nil {
		return hook.Run{Script: name, Reason: reason(context.Cause(ctx))}, true
	}
	if refusal := t.refusal(); refusal != "" {
		return hook.Run{Script: name, Reason: refused(refusal)}, true
	}
	switch s := t.examine(name); s.Status {
	case Refused:
		return hook.Run{Script: name, Reason: refused(s.Why)}, true
	case Skipped:
		return hook.Run{}, false
	}
	d.counters.running.Add(1)
	defer d.counters.running.Add(-1)
	return d.runner.run(ctx, t, name, e), true
}

// record counts and logs what came of an event. Standard error may quote the
// payload, so it stays out of the log.
func (d *Dispatcher) record(kind hook.Kind, r hook.Result) {
	if r.OK && r.ID == "" {
		return
	}
	if !r.OK {
		d.counters.failed.Add(1)
	}
	for _, f := range r.Errors {
		d.o.Log.Warn("hook failed", "hook", kind, "script", f.Script, "code", f.Code, "reason", f.Reason, "id", r.ID)
	}
	d.o.Done(kind, r)
}

// reason says why an event, or a script, was not run to its end.
func reason(err error) string {
	if errors.Is(err, errBusy) {
		return err.Error()
	}
	return "stopped: " + err.Error()
}

func refused(why string) string { return "refused: " + why }

// compacted checks a payload and takes the space out of it.
func compacted(payload json.RawMessage) (compact []byte, problem string) {
	trimmed := bytes.TrimLeft(payload, " \t\r\n")
	switch {
	case len(trimmed) == 0, string(bytes.TrimRight(trimmed, " \t\r\n")) == "null":
		return []byte("{}"), ""
	case !utf8.Valid(payload):
		return nil, "the payload is not valid UTF-8"
	}
	var b bytes.Buffer
	b.Grow(len(payload))
	// Unlike Marshal, this keeps every token as it is.
	if err := json.Compact(&b, payload); err != nil {
		return nil, "the payload: " + err.Error()
	}
	if trimmed[0] != '{' {
		return nil, "the payload must be a JSON object, such as {}"
	}
	return b.Bytes(), ""
}

// counters are what Stats tells.
type counters struct {
	fired, failed, dropped atomic.Uint64
	running                atomic.Int64
}

// Stats are totals since New, and what is under way.
type Stats struct {
	// Fired counts events, also those with nothing to run; Failed those of
	// them that failed; Dropped those that FireLater, or the end, dropped.
	Fired, Failed, Dropped uint64
	// Running is how many scripts run, Waiting how many events wait for a
	// slot, Queued how many FireLater keeps.
	Running, Waiting, Queued int
}

// Stats returns the figures as they are.
func (d *Dispatcher) Stats() Stats {
	return Stats{
		Fired:   d.counters.fired.Load(),
		Failed:  d.counters.failed.Load(),
		Dropped: d.counters.dropped.Load(),
		Running: int(d.counters.running.Load()),
		Waiting: int(d.ordinary.waiting.Load() + d.enforcing.waiting.Load()),
		Queued:  d.queue.len(),
	}
}
