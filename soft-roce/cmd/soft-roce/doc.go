// Command soft-roce is the project's tool for the kernel's RDMA devices without hardware; the Makefile calls it.
//
//	soft-roce vm [flags] -- COMMAND...    runs a command in the VM of package vm, with the command's output and exit status
//
// The same program is the VM's init, so it must be linked statically.
package main
