// Package rendezvous is where tensors meet: a producer puts a tensor under a
// key and goes on, a consumer asks for the key, before or after, and each
// value is handed to exactly one consumer, exactly once. The semantics are
// those of TensorFlow's rendezvous; a context takes the place of its
// cancellation manager.
//
//	Manager ── one per process: finds the rendezvous of a step,
//	   │       remembers steps that are over, asks publications first
//	   └─ BaseRemote ── one per step: checks devices, decides local or
//	         │          remote, aborts calls that are under way
//	         ├─ Local ── the step's table: one FIFO queue per key
//	         └─ Remoter ── a transport, for values that another task sends
//
//	IntraProcess ── a Local for steps that never leave the process
//
// # Rules
//
//   - Send never blocks. A queue holds values or receives, never both, and is
//     first in, first out. The table is found by the full text of the key.
//   - Send freezes the tensor and takes a reference of its own; the receiver
//     releases the reference that it is given.
//   - Of every receive done runs exactly once, outside every lock. For a local
//     match it runs on the goroutine that made the match, which may be the one
//     in Send, Recv, Abort or Close: it must not block. It may send, receive
//     and abort. For a remote receive it runs on a goroutine of its own and
//     may block.
//   - A context that ends cancels the receive: it ends with Cancelled (or
//     DeadlineExceeded) and has consumed nothing. Once a value is matched the
//     context no longer matters.
//   - Abort keeps the first error. It fails what waits and every later call,
//     and drops values that nobody took.
//
// The package is pure: no sockets, no devices. ARCHITECTURE.md section 3 is
// the contract that every transport keeps on top of it.
package rendezvous
