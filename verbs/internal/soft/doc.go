// Package soft has what every device in Go needs beside its queue pairs: protection domains,
// registered memory and its keys, windows, completion queues and asynchronous events. The
// providers verbs/roce, verbs/tcp and verbs/shm embed a Device in theirs, and decide how content
// moves.
//
//	Device ──► PD ──► Region ──► Window      created and closed under Device.Mu
//	   │                └───────────┴──► Keys     looked up by the data path, under Keys.Mu
//	   ├─────► CQ                             filled by queue pairs, under a lock of its own
//	   └─────► events, for NextEvent
//
// A method whose name ends in Locked expects Device.Mu, or Keys.Mu for reading if it is a method
// of Keys.
package soft
