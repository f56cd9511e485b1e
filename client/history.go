package client

import (
	"context"
	"fmt"
	"net/http"

	agentrelay "github.com/agent-relay/agent-relay"
)

// StatusNotFound is what Status says of messages that the broker does not
// know, or that are none of the agent's business.
const StatusNotFound agentrelay.Status = "not_found"

// Status tells where messages stand that the agent sent or received, in the
// order of ids; at most agentrelay.MaxStatusIDs of them. Bodies are not in it.
func (c *Client) Status(ctx context.Context, ids ...string) ([]agentrelay.Message, error) {
	if len(ids) > agentrelay.MaxStatusIDs {
		return nil, &agentrelay.Error{
			Code:    agentrelay.CodeBadRequest,
			Message: fmt.Sprintf("%d ids are more than the %d that one call may name", len(ids), agentrelay.MaxStatusIDs),
		}
	}
	body := []byte(`{"messageIds":[`)
	for i, id := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = agentrelay.AppendString(body, id)
	}
	return c.list(ctx, "/v1/status", append(body, "]}"...))
}

// Filter selects messages of the agent's own inbox. Members that are zero
// select all.
type Filter struct {
	Kind   agentrelay.Kind
	Status agentrelay.Status
	// From is a sender.
	From string
	// Limit and MaxBytes bound the answer as in PollOptions.
	Limit, MaxBytes int
}

// Recent returns the newest messages of the agent's inbox, newest first,
// whatever became of them; at most limit, by default agentrelay.DefaultLimit.
func (c *Client) Recent(ctx context.Context, limit int) ([]agentrelay.Message, error) {
	return c.list(ctx, "/v1/recent", object(appendNumber(nil, "limit", int64(limit))))
}

// Query returns messages of the agent's inbox that f selects, newest first.
func (c *Client) Query(ctx context.Context, f Filter) ([]agentrelay.Message, error) {
	b := appendNumber(nil, "limit", int64(f.Limit))
	b = appendNumber(b, "max_bytes", int64(f.MaxBytes))
	for _, member := range []struct{ name, value string }{
		{"kind", string(f.Kind)}, {"status", string(f.Status)}, {"from", f.From},
	} {
		if member.value != "" {
			b = appendText(b, member.name, member.value)
		}
	}
	return c.list(ctx, "/v1/messages/query", object(b))
}

// list makes a call whose answer is a list of messages.
func (c *Client) list(ctx context.Context, target string, body []byte) ([]agentrelay.Message, error) {
	var result struct {
		Messages *[]agentrelay.Message `json:"messages"`
	}
	err := c.do(ctx, call{method: http.MethodPost, target: target, body: body}, &result,
		func() bool { return result.Messages != nil })
	if err != nil {
		return nil, err
	}
	return *result.Messages, nil
}
