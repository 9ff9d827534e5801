// Package bench compares Tryst with baselines: a receive with a bare gRPC call of
// the same size, a local rendezvous with a map under a mutex.
//
// A contest runs the baseline twice and Tryst once, back to back, 0.3 s each, at
// least 15 times after a warm-up. It reverses the order each time:
//
//	baseline, baseline, ours │ ours, baseline, baseline │ …
//	    └─ A/A ─┘└── pair ──┘      └─ pair ──┘└─ A/A ─┘
//
// The ratio is the median of the pairs. The quartiles of A/A show how much the
// baseline varies on this machine at this time; a smaller miss of a target is
// reported as noise.
//
// The peer of a benchmark is a second process (Peer, Serve) with a complete Tryst
// server, and a listener of its own for each baseline. Both sides use one
// connection with the same options, send the same memory, and receive into memory
// from the same tensor.Pool. The baselines of routes run in two more processes
// (bare.go), and so do programs of others (peers.go). The calls of a program, tryst.Step, run in two
// tasks of a cluster (steps.go, stepper.go). An all-reduce has four processes
// for each side (allreduce.go, gloo.go).
package bench
