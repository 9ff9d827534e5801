// Package ops has TensorFlow's ops with kernels in Go: the kernel set "go".
//
//	Registry ── op ─┬─ OpDef    from one line of notation (ParseDef)
//	   │            └─ NewFunc  makes the kernel of a node, or refuses its types
//	   └─ NewState ── State     variables, queues, accumulators and tables by container and name, one for each worker session
//
// A kernel checks what the definition of the op does not: shapes, ranges and values. Each size from
// a graph is checked before memory is allocated, and all outputs are allocated from the step.
// Kernels for half and bfloat16 compute in float, as TensorFlow's do.
//
// Queues and accumulators are machines of package waiting, with a lock around each: a kernel that waits is a
// graph.AsyncKernel, whose done the step calls that ends the wait.
//
// Kernels for checkpoints use files below the directories of AllowFiles. Package bundle has the files, and files.go which
// of them a graph may name.
//
// Stacks, TensorArrays and TensorLists belong to one step: they end with the last value that has their handle (stepObject). A
// TensorList is a value: it changes only in a kernel that has its one reference.
package ops
