// Package vm boots a stock Debian kernel, which has the driver rdma_rxe, in QEMU, and runs commands
// in it. The guest sees the programs, libraries and the repository of the host, so programs that
// were built on the host run in it unchanged.
//
//	cache/kernel-VERSION-HASH/   vmlinuz and the modules that the guest loads, from Debian's package
//	cache/accelerator-HASH       whether KVM works here, see [Accelerator]
//	memory                       the initial file system: this program, the modules, a configuration
//	the host's /                 the guest's root: read-only (9p), under a layer in its memory (overlay)
//	share                        the same directory in the guest, writable (9p)
//	a serial port                commands to the guest; output and exit status back (package frame)
//	the console                  kept for error messages, so it does not mix with a command's output
//
// The guest has no network except lo and the pair of Soft-RoCE devices of package softroce. Its host
// name is [GuestName]. QEMU ends with Close, with the context, or with this process, even if that is
// killed.
package vm
