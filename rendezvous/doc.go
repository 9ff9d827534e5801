// Package rendezvous matches the producers of tensors with their consumers. A
// producer sends a tensor under a key and does not wait. A consumer receives
// from the key, before or after the send. Each value is delivered to exactly
// one consumer, exactly once. The semantics are those of TensorFlow's
// rendezvous, with a context in place of its cancellation manager.
//
//	Manager ── one per process: finds the rendezvous of a step,
//	   │       remembers ended steps, searches publications first
//	   └─ BaseRemote ── one per step: checks devices, decides local or
//	         │          remote, aborts calls that are under way
//	         ├─ Local ── the step's table: one FIFO queue per key
//	         └─ Remoter ── a transport, for values that another task sends
//
//	IntraProcess ── a Local for steps that never leave the process
//
// # Rules
//
//   - Send never blocks. The queue of a key is first in, first out and holds
//     either values or receives, never both. Keys are compared by their full
//     text.
//   - SendWait is Send with a bound on what its receiver does not have yet, and
//     with a Delivery that tells what becomes of the value.
//   - Send takes a reference to the tensor. Nobody may write to the tensor's
//     memory afterwards. The receiver gets one reference and releases it.
//   - The done callback of a receive runs exactly once, outside every lock. For
//     a local match it runs on the goroutine that made the match, inside Send,
//     RecvAsync, Abort or Close, and must not block. It may send, receive and
//     abort. For a remote receive it runs on a goroutine of its own and may
//     block.
//   - When the context of a receive ends before a value is matched, the receive
//     ends with Cancelled or DeadlineExceeded and consumes nothing. After the
//     match the context has no effect.
//   - Abort fails all waiting receives and every later call, and drops the
//     values that were not received. The first error of several aborts stays.
//
// The package uses no sockets and no devices. ARCHITECTURE.md section 3 is the
// contract that every transport keeps on top of it.
package rendezvous
