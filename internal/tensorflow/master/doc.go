// Package master drives TensorFlow workers from Go, as TensorFlow's own master does: it opens a
// session at a worker, registers graphs, runs steps, and gets tensors in and out. Any process with
// TensorFlow's WorkerService is such a worker: a stock tf.distribute.Server, or a Tryst server.
//
//	Session ── Register(Graph) ──> Program ── Run(step, feeds) ──> fetches
//	   │
//	   Open: GetStatus, CreateWorkerSession           Close: DeleteWorkerSession
//
// Tensors are sent by two calls:
//
//   - Feeds and fetches are part of the messages of a run, and need no server of the caller. They
//     are for small tensors: a message has at most 2 GiB, and the content is copied.
//   - Graph.Send and Graph.Recv are edges to and from the device of another task of the worker's
//     cluster, such as a Tryst server in this process. The tensor is requested by RecvTensor, and a
//     Tryst server sends and receives it by its Rendezvous of the same step.
//
// A graph is written node by node, with the ops and attributes of TensorFlow. Attributes at their
// defaults may be left out. Errors of the worker are returned as they came.
package master
