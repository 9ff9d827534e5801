// Package verbs holds the tests of verbs between processes. Each process is a server on one end of
// a virtual cable with the kernel's Soft-RoCE on it, and the tests cause real faults. It has no
// code of its own.
//
//	make test-rxe PKG=./integration/verbs
//
//	test ──── commands by pipe ────► node (this binary) ── rxe0 ── v0
//	 │ proxy: gRPC over lo, which a test can cut                    │ a test can cut it or drop packets
//	 └──────────────────────────────► node ─────────────── rxe1 ── v1
//
// The hostile peer of TestRxeHostilePeer and TestRxeGetRemoteAddress is the test itself, with its
// own queue pair (package hostiletest).
//
// gRPC does not use the cable, so a test can disturb gRPC or RDMA alone. After each test every
// receive has ended exactly once, with the right bytes or an error that names the cause, and the
// kernel counts as many objects of both devices as before.
package verbs
