// Command soft-roce is the project's tool for the kernel's RDMA devices without hardware; the Makefile calls it.
//
//	soft-roce vm [flags] -- COMMAND...      runs a command in the VM, with its output and exit status
//	soft-roce vm [flags]                    a shell in the VM
//	soft-roce where [flags]                 says where the tests of the tier will run: vm, native, none, or skip and why
//	soft-roce missing [flags]               lists what the VM needs and would be installed or downloaded
//	soft-roce test [flags] [TESTARGS...]    runs them there, and writes the events of go test -json
//	soft-roce up [NAME=NETDEV...]           makes RDMA devices on this machine's kernel; without names the pair rxe0, rxe1
//	soft-roce down [NAME...]                removes them
//	soft-roce list                          lists them
//
// The same program is the VM's init, so it must be linked statically.
package main
