// Package disk makes changes to directories durable. It stands apart because
// the client, setup and the store all need that, and none of them may import
// another.
package disk
