// Package bench measures Tryst beside baselines: what a receive costs above a
// bare gRPC call of the same size, what a local rendezvous costs above a locked
// map.
//
// A contest runs the baseline twice and ours once, back to back, 0.3 s each, at
// least 15 times after a warm-up, and turns the order around each time:
//
//	baseline, baseline, ours │ ours, baseline, baseline │ …
//	    └─ A/A ─┘└── pair ──┘      └─ pair ──┘└─ A/A ─┘
//
// The ratio is the median of the pairs. The quartiles of A/A tell how far the
// baseline is from itself on this machine in this minute; a target that is
// missed by less is called noise.
//
// What needs a peer has one in a second process (Peer, Serve): a whole Tryst
// server, and beside it each baseline on a listener of its own. Both sides use
// one connection with the same options, the same memory is sent, and the
// destinations come from the same tensor.Pool.
package bench
