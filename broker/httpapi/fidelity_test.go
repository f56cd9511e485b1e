package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// bodies are values that come back changed when they are read and written
// again.
var bodies = []string{
	`12345678901234567890123456789`, `-0`, `1.0`, `1E+2`, `1e400`, `0.1e-7`,
	`{"a":1,"a":2,"b":3,"a":{}}`, `{"z":1,"a":2}`, `{"":0}`,
	`"\u0041\/\b\f\n\r\t\"\\"`, `"\u00e9"`, `"é"`, `"e\u0301"`,
	`"😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\ud800"`, `"\udc00\ud800"`, `{"\udead":"\ud800x"}`,
	"\"\u2028\u2029\"", `"\u2028"`, `"<script>&amp;'</script>"`, `"\u003c"`, `"\u0000"`, "\"\u007f\ufeff\uffff\"",
	"{ \"a\" :\t[ 1 ,\r\n 2 ] }", `[ ]`, `{ }`, `[[[[[]]]]]`,
	`null`, `true`, `false`, `""`, `0`, `"{\"a\":1}"`,
}

func TestBodiesComeBackByteForByte(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	for i, body := range bodies {
		ann.post("/messages", fmt.Sprintf(`{"to":"ben","id":"m%d","body":%s}`, i, body)).want(http.StatusCreated, nil)
		// White space around the value is no part of it.
		ann.post("/messages", fmt.Sprintf("{\"to\":\"ben\",\"id\":\"m%d\",\"body\" \n: %s\t}", i, body)).want(http.StatusOK, nil)
	}
	for name, a := range map[string]answer{
		"poll":   ben.get("/messages?limit=200"),
		"recent": ben.post("/v1/recent", `{"limit":200}`),
		"query":  ben.post("/v1/messages/query", `{"limit":200}`),
		"pull":   ben.post("/v1/pull", `{"limit":200}`),
	} {
		var list struct{ Messages []envelope }
		a.want(http.StatusOK, &list)
		if len(list.Messages) != len(bodies) {
			t.Fatalf("%s returns %d messages, want %d", name, len(list.Messages), len(bodies))
		}
		for _, m := range list.Messages {
			var i int
			if _, err := fmt.Sscanf(m.ID, "m%d", &i); err != nil {
				t.Fatal(err)
			}
			if string(m.Body) != bodies[i] {
				t.Errorf("%s: body %q came back as %q", name, bodies[i], m.Body)
			}
			if !strings.Contains(a.body, `"body":`+bodies[i]+`,"replyTo":`) {
				t.Errorf("%s: the answer does not hold %q as it was sent", name, bodies[i])
			}
		}
	}
}

// The last of several members counts, for the body as for the rest.
func TestRepeatedMembers(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.post("/messages", `{"to":"nobody","body":1,"id":"a","to":"ben","body":2,"id":"b","\u0062ody":3}`).want(http.StatusCreated, nil)
	if p := ben.poll(""); len(p.Messages) != 1 || p.Messages[0].ID != "b" || string(p.Messages[0].Body) != "3" {
		t.Errorf("got %+v", p.Messages)
	}
}

// Old clients put text of their own into the references of an envelope.
func TestReferencesKeepTheirText(t *testing.T) {
	r := newRelay(t, setup{})
	ann, ben := r.agent("ann"), r.agent("ben")
	ann.post("/messages", `{"to":"ben","replyTo":"é \"x\"","rootId":"\u2028","parentId":"a b"}`).want(http.StatusCreated, nil)
	m := ben.poll("").Messages[0]
	if *m.ReplyTo != `é "x"` || *m.RootID != "\u2028" || *m.ParentID != "a b" {
		t.Errorf("the references are %q, %q, %q", *m.ReplyTo, *m.RootID, *m.ParentID)
	}
}
