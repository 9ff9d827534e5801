// Package vm boots a stock Debian kernel, which has the driver rdma_rxe, in QEMU, and runs commands of this machine in it. Programs,
// libraries and the repository are the host's own, so whatever is built outside runs inside as it is.
//
//	cache/kernel-VERSION-HASH/     vmlinuz and the modules that the guest loads, out of Debian's package
//	cache/accelerator-HASH         whether KVM works here, see [Accelerator]
//	memory                         the initial file system: this program, the modules, a configuration
//	the host's /                   the guest's, read-only, under a layer in its memory (9p, overlay)
//	share                          the same directory in the guest, writable
//	one serial port                commands in; output and exit status out (package frame)
//	the console                    kept for errors only: no kernel message ever mixes with a command's output
//
// The guest has no network but lo and the pair of Soft-RoCE devices of package softroce, its host name is [GuestName], and everything
// in it ends with it. QEMU ends when the caller says so, when the context ends, or when this process dies, however it dies.
package vm
