// Package library is the kernel set "tensorflow": the kernels of a TensorFlow library that is
// opened at run time, without cgo and without Python.
//
// A graph of one device is cut into subgraphs, and each subgraph runs as one TensorFlow function:
//
//	_Recv ──> ┌ MatMul ── Add ┐ ──> _Send      _Send, _Recv, Switch, Merge, Enter, … stay in Go.
//	          └───────────────┘                All nodes of a subgraph wait for the same of them
//	             one function                  (cut.go), so no subgraph waits longer than its nodes would.
//
// Reference variables do not leave a subgraph. Each subgraph that uses one has a copy of its VariableV2
// node; all copies have the same shared_name, so they are one variable (references.go).
//
// # State
//
// A State is one TensorFlow context: variables, queues and tables of a worker session, or of several
// that share them. A function is added to it when its first kernel is made, under a name made of its
// content, and removed when its last kernel is closed. Two graphs with equal subgraphs share the
// function. A random node has a function of its own, which belongs to the session, since the kernel in
// it has the generator (random.go); so has a node with a queue or another object of its own, which ends
// with the session (private.go). A reset gives the containers that it names another generation, for
// which functions are made anew (containers.go).
//
// # What graphs reach
//
// A graph comes from anybody who may register one, and an op of TensorFlow may do what the process may do.
// ops.txt says what each op reaches beyond memory. A graph that reaches more than is allowed is refused
// before TensorFlow gets anything of it (reach.go). When files are allowed below some directories, the
// kernel process is confined to them by Landlock (confine_linux.go).
//
// # Who frees what
//
//	tensor in, copied   the library has its own copy; the executor keeps its reference
//	tensor in, lent     memory that is not on the Go heap: the kernel takes a reference, and the
//	                    library's deallocator, the only callback, releases it
//	handle in           the kernel deletes it after the run
//	handle out          the kernel deletes it after it has taken the TF_Tensor
//	TF_Tensor out       the tensor.Buffer owns it, and frees it after the last Release
//	resource, variant   an opaque value owns the handle, and deletes it after the last Release
//
// The last two hold the context too; it is deleted after its State is closed and nothing holds it.
package library
