// Package verbs holds the tests of verbs between processes: each is a server of
// its own, on one end or the other of a virtual cable with the kernel's Soft-RoCE
// on it, and what goes wrong goes wrong for real. It has no code of its own.
//
//	make test-rxe PKG=./integration/verbs
//
//	test ──── commands by pipe ────► node (this binary again) ── rxe0 ── v0
//	 │ proxy: gRPC over lo, cut at will                                   │ down, lossy
//	 └──────────────────────────────► node ─────────────────── rxe1 ── v1
//
// The hostile peer of TestRxeHostilePeer and TestRxeGetRemoteAddress is the test itself,
// with a queue pair of its own (package hostiletest).
//
// gRPC takes another way than RDMA, so each can be disturbed alone. After each test
// every receive has ended once, with the right bytes or an error that says what
// happened, and the kernel counts as many objects of both devices as before.
package verbs
