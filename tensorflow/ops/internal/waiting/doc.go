// Package waiting has the state machines of the kernels that wait for each other: TensorFlow's queues and
// conditional accumulators.
//
//	Queue        elements, and the attempts to enqueue, to dequeue and to close that wait
//	Accumulator  the number of gradients, the global step, and the attempts to take that wait
//
// A machine is a value without locks, goroutines and memory of its own: each event returns the attempts
// that it ends, in their order. The order, partial attempts and the texts of errors are those of TensorFlow's
// kernels (queue_base.cc, fifo_queue.cc, random_shuffle_queue_op.cc, padding_fifo_queue.cc, priority_queue.cc,
// conditional_accumulator_base.cc).
package waiting
