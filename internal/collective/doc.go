// Package collective runs TensorFlow's collective operations: all-reduce, broadcast and gather
// among a group of devices, each in a process of its own. Groups may have TensorFlow's workers
// as members.
//
//	member                                        leader of the groups (one task of the cluster)
//	  │ 1. CompleteGroup: here is my device          │ waits for all members, ranks them by name
//	  │ 2. CompleteInstance: this is my operation    │ compares types and shapes, finds the source
//	  │
//	  │ 3. buffers, from one member to another       next member of the ring, child in the tree
//	  └── provide(key, chunk) ◄── RecvBuf, or a receive of the ledger ── consume(key) into memory
//
// A member that has a chunk provides it under a key, in the table of its step (bufs). The member
// that needs the chunk requests it: from a TensorFlow worker by RecvBuf, from a Tryst worker by a
// receive of the one ledger, by the route between the two. Keys, chunk sizes, rings and trees
// are those of TensorFlow 2.21.
//
// When a member gives up another is decided by a pure machine (waits.go): it watches those that have
// to take something of it, and calls all that it waits for. A search tries each fault at each moment.
//
// The steps of graphs run them by Collectives.Run (the kernels are in tensorflow/ops/collectives.go); Group has
// the same operations for a Go program.
package collective
