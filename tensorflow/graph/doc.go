// Package graph turns the GraphDef that a TensorFlow master registers into an executable graph,
// and runs it.
//
//	GraphDef ── Import ──> Graph ── State.Rewrite ──> NewExecutor ──> Executor.Run, once a step
//	              │                      │                 │
//	        KernelSet.OpDef        pieces that a       State.NewKernel
//	        (defaults, types)      set runs as one     (one for each node)
//
// A KernelSet has the ops of a process: tensorflow/ops in Go, or those of a TensorFlow library. A State
// is what a set keeps for one worker session: its variables, queues and generators. The executor
// knows neither; it runs each node when its inputs are there, in parallel, with TensorFlow's
// rules for dead values and loops.
package graph
