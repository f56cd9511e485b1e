package sqlite

import (
	"strconv"
	"strings"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/store"
)

// maxEndedLeases bounds what is kept of one message's settled leases. A
// message is settled at most once per attempt, so the oldest to go are of
// leases nobody repeats any more.
const maxEndedLeases = 16

// endedLeases is how a message's leases were settled, a line each: lease id,
// outcome, the status and the attempts that were answered.
type endedLeases string

func (e endedLeases) add(lease string, o agentrelay.Outcome, s store.Settled) endedLeases {
	line := strings.Join([]string{lease, string(o), string(s.Status), strconv.Itoa(s.Attempts)}, " ")
	if e == "" {
		return endedLeases(line)
	}
	lines := strings.Split(string(e), "\n")
	lines = append(lines[max(0, len(lines)-maxEndedLeases+1):], line)
	return endedLeases(strings.Join(lines, "\n"))
}

func (e endedLeases) find(lease string, o agentrelay.Outcome) (store.Settled, bool) {
	for line := range strings.SplitSeq(string(e), "\n") {
		part := strings.Split(line, " ")
		if len(part) == 4 && part[0] == lease && part[1] == string(o) {
			attempts, err := strconv.Atoi(part[3])
			return store.Settled{Status: agentrelay.Status(part[2]), Attempts: attempts}, err == nil
		}
	}
	return store.Settled{}, false
}
