package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	agentrelay "github.com/agent-relay/agent-relay"
	"github.com/agent-relay/agent-relay/client"
)

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status ID...",
		Short: "Tell where messages stand that the agent sent or received",
		Long: `Prints a line for each id, in that order: the id, where the message stands
(queued, leased, done, failed, expired, or not_found), how many attempts failed,
its sender and recipient, when it was sent, and when it was first handed over.` + connectionHelp,
		Example: `  agent-relay status --agent alpha job/17 job/18`,
		Args:    messageArguments(cobra.RangeArgs(1, agentrelay.MaxStatusIDs)),
	}
	flags := addClientFlags(cmd)
	cmd.RunE = a.calling(flags, false, func(ctx context.Context, args []string, c *client.Client, d *display) error {
		found, err := c.Status(ctx, args...)
		if err != nil {
			return err
		}
		if d.json {
			documents := make([]statusDocument, len(found))
			for i := range found {
				documents[i] = newStatusDocument(&found[i])
			}
			return d.document(map[string]any{"messages": documents})
		}
		rows := make([][]string, len(found))
		for i, m := range found {
			rows[i] = []string{m.ID, string(m.Status), strconv.Itoa(m.Attempts), "-", "-", "-", "-"}
			if m.Status != client.StatusNotFound {
				rows[i] = append(rows[i][:3], m.From, m.To, d.when(m.TS), d.when(m.DeliveredAt))
			}
		}
		return d.table([]string{"ID", "STATUS", "ATTEMPTS", "FROM", "TO", "SENT", "DELIVERED"}, rows)
	})
	return cmd
}

// statusDocument is an answer's entry as the protocol shows it (PROTOCOL.md,
// "POST /v1/status").
type statusDocument struct {
	ID          string            `json:"id"`
	Status      agentrelay.Status `json:"status"`
	Attempts    int               `json:"attempts"`
	TS          string            `json:"ts,omitempty"`
	From        string            `json:"from,omitempty"`
	To          string            `json:"to,omitempty"`
	Kind        agentrelay.Kind   `json:"kind,omitempty"`
	DeliveredAt string            `json:"deliveredAt,omitempty"`
}

func newStatusDocument(m *agentrelay.Message) statusDocument {
	return statusDocument{m.ID, m.Status, m.Attempts, timestamp(m.TS), m.From, m.To, m.Kind, timestamp(m.DeliveredAt)}
}

// timestamp is a time as the protocol writes it; empty for none.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func (a *app) recentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recent",
		Short: "Print the newest messages of the agent's inbox, whatever became of them",
		Long: `Prints messages of the agent's inbox in any state, newest first. It changes
nothing, not even what recv prints next.` + jsonHelp + connectionHelp,
		Example: `  agent-relay recent --agent beta --limit 5`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	page := addPageFlags(cmd)
	cmd.RunE = a.calling(flags, true, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		found, err := c.Query(ctx, client.Filter{Limit: page.limit, MaxBytes: page.maxBytes})
		d.messages(found)
		return err
	})
	return cmd
}

func (a *app) queryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query",
		Short: "Print messages of the agent's inbox by kind, state and sender",
		Long: `Prints messages of the agent's inbox that fit all that is asked for, newest
first. It changes nothing, not even what recv prints next.` + jsonHelp + connectionHelp,
		Example: `  agent-relay query --agent beta --status failed --from alpha`,
		Args:    arguments(cobra.NoArgs),
	}
	flags := addClientFlags(cmd)
	page := addPageFlags(cmd)
	var f client.Filter
	cmd.Flags().StringVar(&f.From, "from", "", "only from this `agent`")
	choice(cmd, (*string)(&f.Kind), "kind", "only of this kind", kinds)
	choice(cmd, (*string)(&f.Status), "status", "only in this state", statuses)
	cmd.RunE = a.calling(flags, true, func(ctx context.Context, _ []string, c *client.Client, d *display) error {
		f.Limit, f.MaxBytes = page.limit, page.maxBytes
		found, err := c.Query(ctx, f)
		d.messages(found)
		return err
	})
	return cmd
}

var (
	kinds    = []string{string(agentrelay.KindMessage), string(agentrelay.KindRequest), string(agentrelay.KindReply)}
	statuses = []string{
		string(agentrelay.StatusQueued), string(agentrelay.StatusLeased), string(agentrelay.StatusDone),
		string(agentrelay.StatusFailed), string(agentrelay.StatusExpired),
	}
)
