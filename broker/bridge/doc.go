// Package bridge makes connectors peers of the relay. What an agent sends to a
// connector's name comes out on its chat platform, and what people write there
// arrives as messages from that name.
//
// Going out, messages are carried out one at a time and in order. The lease that
// is taken before the first frame is written is the record that a message may
// have been sent: what is found leased at the start is answered as ambiguous,
// and never sent again by itself. Every message is answered by one receipt, whose
// body tells what the platform said.
//
// Coming in, an event is acknowledged after it is stored. Its id follows from
// what the connector calls it, so that one that comes again is stored once.
package bridge
