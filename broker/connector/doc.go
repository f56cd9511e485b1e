// Package connector speaks to external connectors: servers that bridge a chat
// platform, which the relay dials over WebSocket.
//
// One half is the contract, version 1, without any I/O: descriptors, frames of
// both directions, actions and their results, tokens and delivery signatures.
// It serves a connector written in Go as well as the relay. The other half is
// the relay's end of a connection: Transport, which dials, reconnects, matches
// results with requests and hands over what comes in.
package connector

// ContractVersion is the version of the contract that this package speaks.
const ContractVersion = 1

// MaxFrame is the size limit of a frame, 1 MiB. A frame that is sent keeps it
// with its newline included, so that also a peer that limits whole messages
// takes it; a frame that is received may have its newline in addition.
const MaxFrame = 1 << 20
