package httpapi

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	agentrelay "github.com/agent-relay/agent-relay"
)

// object reads a request's body as a JSON object. An empty body is {} where
// every member is optional. A member "agent" must be the one that signed.
func (q *request) object(optional bool) (agentrelay.Object, error) {
	if optional && len(bytes.TrimSpace(q.body)) == 0 {
		return nil, nil
	}
	o, err := agentrelay.ParseObject(q.body)
	if err != nil {
		return nil, err
	}
	agent, present, err := o.Text("agent")
	if err == nil && present && agent != q.agent {
		err = badRequest(`"agent" must be the agent that signed the request; leave it out`)
	}
	return o, err
}

// param reads one parameter of the query, of several the first. A plus sign
// stands for itself, as it does in message ids, and so does text that is not
// properly escaped.
func (q *request) param(name string) string {
	for pair := range strings.SplitSeq(q.URL.RawQuery, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if unescape(key) == name {
			return unescape(value)
		}
	}
	return ""
}

func unescape(s string) string {
	if text, err := url.PathUnescape(s); err == nil {
		return text
	}
	return s
}

// parseNumber reads a number as lenient members allow it: a JSON number, or a
// decimal number in a string or in the query.
func parseNumber(text string) (n float64, ok bool) {
	text = strings.TrimSpace(strings.Trim(text, `"`))
	if text == "" || strings.Trim(text, "+-.0123456789eE") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil || math.IsInf(n, 0)
}

func member(o agentrelay.Object, name string) string {
	raw, _ := o.Get(name)
	return string(raw)
}

// parseLimit reads how many messages to list: 50 where that is unreadable,
// else cut to a whole number from 1 to 200.
func parseLimit(text string) int {
	n, ok := parseNumber(text)
	if !ok {
		return agentrelay.DefaultLimit
	}
	return int(min(max(math.Floor(n), 1), agentrelay.MaxLimit))
}

// parseMaxBytes reads how many bytes of bodies to list: 4 MiB where that is
// unreadable, and never more.
func parseMaxBytes(text string) int {
	n, ok := parseNumber(text)
	if !ok {
		return agentrelay.MaxPageBytes
	}
	return int(min(max(math.Floor(n), 1), agentrelay.MaxPageBytes))
}

// parseWait reads how long to wait for messages, in seconds: 0 where that is
// unreadable, 60 at most.
func parseWait(text string) time.Duration {
	n, ok := parseNumber(text)
	if !ok {
		return 0
	}
	return time.Duration(min(max(n, 0), agentrelay.MaxWaitSeconds) * float64(time.Second))
}

// parseLease reads leaseSeconds: a whole number, or digits in a string.
func parseLease(o agentrelay.Object, otherwise time.Duration) (time.Duration, error) {
	raw, present := o.Get("leaseSeconds")
	if !present {
		return otherwise, nil
	}
	text, quoted := strings.CutPrefix(string(raw), `"`)
	if quoted {
		text = strings.TrimSuffix(text, `"`)
		if strings.Trim(text, "0123456789") != "" {
			text = ""
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || n < agentrelay.MinLeaseSeconds || n > agentrelay.MaxLeaseSeconds {
		return 0, badRequest(`"leaseSeconds" must be a whole number from %d to %d`, agentrelay.MinLeaseSeconds, agentrelay.MaxLeaseSeconds)
	}
	return time.Duration(n) * time.Second, nil
}

// parseID reads a member that must hold a message id.
func parseID(o agentrelay.Object, name string) (string, error) {
	id, present, err := o.Text(name)
	if err == nil && (!present || !agentrelay.WellFormedID(id)) {
		err = badRequest("%q must be a message id", name)
	}
	return id, err
}

// parseIDs reads the ids of a status call.
func parseIDs(o agentrelay.Object) ([]string, error) {
	raw, _ := o.Get("messageIds")
	var list []*string
	if json.Unmarshal(raw, &list) != nil || list == nil || len(list) > agentrelay.MaxStatusIDs {
		return nil, badRequest(`"messageIds" must be a list of up to %d message ids`, agentrelay.MaxStatusIDs)
	}
	ids := make([]string, len(list))
	for i, id := range list {
		if id == nil {
			return nil, badRequest(`"messageIds" must hold message ids; entry %d is null`, i+1)
		}
		ids[i] = *id
	}
	return ids, nil
}
