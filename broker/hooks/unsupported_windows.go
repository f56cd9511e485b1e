package hooks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/agent-relay/agent-relay/internal/hook"
)

// Windows has no process groups, signals, execute bits or owners in the sense
// that hooks rely on. So nothing runs there, and where somebody expects it,
// the event fails.
const unsupported = "hooks do not run on Windows"

func openTree(dir string, kind hook.Kind) *tree {
	t := &tree{path: kindPath(dir, kind)}
	if _, err := os.Stat(t.path); !errors.Is(err, fs.ErrNotExist) {
		t.unreadable = unsupported
	}
	return t
}

func (t *tree) refusal() string { return unsupported }

func (t *tree) examine(name string) Script { return Script{name, Refused, unsupported} }

type runner struct{ pipes pipes }

func newRunner(*sync.WaitGroup) *runner { return &runner{} }

func (*runner) run(context.Context, *tree, string, execution) hook.Run {
	return hook.Run{Reason: "spawn failed: " + unsupported}
}

func (*runner) adopts() bool { return false }

func (*runner) reapOrphans(context.Context) {}
