// Package together holds the tests of the kernel's Soft-RoCE, through libibverbs, on
// one end of a cable and the device in user space on the other. It has no code of
// its own.
//
//	make test-rxe PKG=./integration/roce/together
//
//	the first namespace                       that of the tests, a new one
//	rxe2 on r0 198.51.100.1 ──────veth─────── r1 198.51.100.2, roce-r1
//	        2001:db8:1::1                        2001:db8:1::2
//
// rxe takes packets at port 4791 of every address of the machine's first network
// namespace, so that ours are in another one. It is that of the whole process, as
// the device in user space is to be what it is in any other process; the kernel's
// device can be used from every namespace (rdma-system(8), netns shared).
package together
