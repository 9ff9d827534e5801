// Package roce holds tests of the user-space RoCEv2 device against an independent peer,
// the kernel's Soft-RoCE. It has no code of its own.
//
//	make test-rxe PKG=./integration/roce
//
// This package tests single packets; package together tests the whole device.
//
//	the kernel's side, first namespace      our side, a namespace of its own
//	rxe2 on r0 198.51.100.1 ─────veth────── r1 198.51.100.2, UDP sockets
//	        2001:db8:1::1                      2001:db8:1::2
//
// rxe receives packets at port 4791 of every address of the first network namespace, so
// our addresses are in another one. The test is one process: one of its threads is in that
// namespace, and a socket stays in the namespace where it was opened.
package roce
