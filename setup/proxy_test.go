package setup

import "testing"

func TestMatchesNoProxy(t *testing.T) {
	for _, test := range []struct {
		host, list string
		want       bool
	}{
		{"relay.example.org", "", false},
		{"relay.example.org", "example.org", true},
		{"relay.example.org", ".example.org", true},
		{"relay.example.org", "*.example.org", true},
		{"relay.example.org", "ample.org", false},
		{"relay.example.org", "RELAY.Example.ORG", true},
		{"relay.example.org", "org,com", true},
		{"example.org", "relay.example.org", false},
		{"localhost", "127.0.0.1", false},
		{"::1", "::1", true},
		{"::1", "::/64", true},
		{"::1", "127.0.0.0/8", false},
		{"10.0.0.1", "10.0.0.0/33", false},
		{"anything", "x,*", true},
		{"anything", ",. ,", false},
	} {
		if got := matchesNoProxy(test.host, test.list); got != test.want {
			t.Errorf("%s in %q: got %v", test.host, test.list, got)
		}
	}
}
