// Package together holds tests of the kernel's Soft-RoCE, through libibverbs, on one end
// of a cable, and of the user-space device on the other end. It has no code of its own.
//
//	make test-rxe PKG=./integration/roce/together
//
//	the first namespace                       the namespace of the tests, a new one
//	rxe2 on r0 198.51.100.1 ──────veth─────── r1 198.51.100.2, roce-r1
//	        2001:db8:1::1                        2001:db8:1::2
//
// rxe receives packets at port 4791 of every address of the first network namespace, so
// our addresses are in another one. The whole process is in that namespace, so that the
// user-space device works as in any other process. The kernel's device can be used from
// every namespace (rdma-system(8), netns shared).
package together
