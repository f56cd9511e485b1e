package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-relay/agent-relay/store"
)

// TestQueryPlans holds each query to one index range: what it costs follows
// what it returns, not what is stored.
func TestQueryPlans(t *testing.T) {
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Options: store.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, c := range map[string]struct {
		query string
		want  []string
	}{
		"poll":            {pageQuery, []string{"SEARCH messages USING INDEX messages_queued (recipient=? AND position>?)"}},
		"id as cursor":    {firstPositionQuery, []string{"SEARCH messages USING INDEX sqlite_autoindex_messages_1 (id=?)"}},
		"message by id":   {withoutBody + `WHERE id = ?`, []string{"SEARCH messages USING INDEX sqlite_autoindex_messages_1 (id=?)"}},
		"leases over":     {overQuery, []string{"SEARCH messages USING INDEX messages_leased (recipient=? AND due_at>? AND due_at<?)"}},
		"history":         {historyQuery, []string{"SEARCH messages USING INDEX messages_inbox (recipient=? AND first_position>? AND first_position<?)"}},
		"held":            {heldQuery, []string{"SEARCH messages USING INDEX messages_leased (recipient=?)", "USE TEMP B-TREE FOR ORDER BY"}},
		"due":             {dueQuery, []string{"SEARCH messages USING INDEX messages_due (due_at<?)"}},
		"next due":        {nextQuery, []string{"SCAN messages USING INDEX messages_due"}}, // from the earliest on, to the first that is not held back
		"expiry to undo":  {reviveQuery, []string{"SEARCH messages USING INDEX messages_expiring (expires_at>?)"}},
		"move leases":     {moveLeases, []string{"SCAN messages USING INDEX messages_leased"}},     // all leases, and nothing else
		"move erasures":   {moveErasures, []string{"SCAN messages USING INDEX messages_expiring"}}, // all that expired within the hour, and nothing else
		"record delivery": {deliveredQuery, []string{"SEARCH messages USING INDEX sqlite_autoindex_messages_1 (id=?)"}},
		// All that is queued, all that is leased, and one message.
		"backlog": {backlogQuery, []string{
			"CO-ROUTINE queued",
			"SCAN messages USING COVERING INDEX messages_queued",
			"SCAN queued",
			"CORRELATED SCALAR SUBQUERY 2",
			"SEARCH messages USING INTEGER PRIMARY KEY (rowid=?)",
			"SCAN messages USING COVERING INDEX messages_leased",
		}},
		"inbox": {inboxQuery, []string{
			"SEARCH agents USING PRIMARY KEY (name=?)",
			"SEARCH messages USING COVERING INDEX messages_leased (recipient=? AND due_at>? AND due_at<?)",
		}},
		"anything to lease": {leasableQuery, []string{
			"SEARCH messages USING INDEX messages_queued (recipient=? AND position>?)",
			"SEARCH messages USING COVERING INDEX messages_leased (recipient=? AND due_at>? AND due_at<?)",
		}},
		"agent":        {agentQuery, []string{"SEARCH agents USING PRIMARY KEY (name=?)"}},
		"agent's keys": {agentKeysQuery, []string{"SEARCH agent_keys USING PRIMARY KEY (agent=?)", "USE TEMP B-TREE FOR ORDER BY"}}, // a handful
		"end keys":     {endKeysQuery, []string{"SEARCH agent_keys USING PRIMARY KEY (agent=?)"}},
		"drop keys":    {dropKeysQuery, []string{"SEARCH agent_keys USING PRIMARY KEY (agent=?)"}},
		"good keys":    {goodKeysQuery, []string{"SEARCH agent_keys USING PRIMARY KEY (agent=?)"}},
		"key was used": {usedKeyQuery, []string{"SEARCH agent_keys USING PRIMARY KEY (agent=? AND id=?)"}},
		// What waits in one inbox, and in all.
		"inbox's backlog": {oneBacklogQuery, []string{
			"COMPOUND QUERY",
			"LEFT-MOST SUBQUERY",
			"SEARCH messages USING COVERING INDEX messages_queued (recipient=?)",
			"UNION ALL",
			"SEARCH messages USING COVERING INDEX messages_leased (recipient=?)",
		}},
		"backlogs": {allBacklogQuery, []string{
			"COMPOUND QUERY",
			"LEFT-MOST SUBQUERY",
			"SCAN messages USING COVERING INDEX messages_queued",
			"UNION ALL",
			"SCAN messages USING COVERING INDEX messages_leased",
		}},
		"inbox's range": {rangeQuery, []string{
			"SEARCH messages USING COVERING INDEX messages_inbox (recipient=?)",
			"SEARCH messages USING COVERING INDEX messages_inbox (recipient=?)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan(t, s, c.query)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("the plan of\n%s\nis\n%s\nwant\n%s", c.query, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// plan returns the steps that touch tables or sort.
func plan(t *testing.T, s *Store, query string) []string {
	t.Helper()
	rows, err := s.reader.Query("EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
	if err != nil {
		rows, err = s.reader.Query("EXPLAIN QUERY PLAN "+query, make([]any, numbered(query))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(detail, "SCALAR SUBQUERY") && !strings.HasPrefix(detail, "SCAN CONSTANT ROW") {
			steps = append(steps, detail)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// numbered returns the highest ?N of a query.
func numbered(query string) int {
	highest := 0
	for n := 1; n < 10; n++ {
		if strings.Contains(query, fmt.Sprint("?", n)) {
			highest = n
		}
	}
	return highest
}
