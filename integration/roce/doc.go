// Package roce holds the tests of the user-space RoCEv2 device against a peer
// that nobody here wrote: the kernel's Soft-RoCE. It has no code of its own.
//
//	make test-rxe PKG=./integration/roce
//
// Here are single packets; package together has the whole device.
//
//	the kernel's side, first namespace      ours, a namespace of its own
//	rxe2 on r0 198.51.100.1 ─────veth────── r1 198.51.100.2, UDP sockets
//	        2001:db8:1::1                      2001:db8:1::2
//
// rxe takes packets at port 4791 of every address of the first network namespace,
// so that ours are in another one. The test is one process: a thread is in that
// namespace, and a socket stays in the one where it was made.
package roce
