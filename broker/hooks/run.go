package hooks

import "time"

// execution is what a script is given.
type execution struct {
	env     []string
	payload []byte
	timeout time.Duration
}
