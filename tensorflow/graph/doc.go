// Package graph turns the GraphDef that a TensorFlow master registers into an executable graph,
// and runs it.
//
//	GraphDef ── Import ──> Graph ── State.Rewrite ──> NewExecutor ──> Executor.Run, once a step
//	              │                      │                 │
//	        KernelSet.OpDef        subgraphs that a    State.NewKernel
//	        (defaults, types)      set runs as one     (one for each node)
//
// A KernelSet has the ops of a process: tensorflow/ops in Go, or those of a TensorFlow library. A State
// is what a set keeps for one worker session: its variables, queues and generators. The executor
// knows neither; it runs each node when its inputs are there, in parallel, with TensorFlow's
// rules for dead values and loops. Which node is ready, and which value is dead, is decided by a
// pure machine (propagate.go). A search compares it with a model, and each rule can be switched off
// there.
//
// A graph comes from a stranger. Import checks types, attributes, cycles and sizes before a kernel
// is made. What a graph and a run may hold is bounded (limits.go, docs/security.md).
//
// Split cuts a graph of several devices into one part for each (split.go).
package graph
