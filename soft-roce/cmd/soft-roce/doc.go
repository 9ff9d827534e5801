// Command soft-roce manages Soft-RoCE devices, and the VM and the tests that use them. The Makefile
// calls it.
//
//	soft-roce vm [flags] -- COMMAND...      run a command in the VM
//	soft-roce vm [flags]                    start a shell in the VM
//	soft-roce where [flags]                 print where the tests would run: vm, native, none, or skip and the reason
//	soft-roce missing [flags]               list what the VM needs that would be installed or downloaded
//	soft-roce test [flags] [TESTARGS...]    run the tests, and print events as go test -json does
//	soft-roce up [NAME=NETDEV...]           add devices to this machine's kernel; without names the pair rxe0, rxe1
//	soft-roce down [NAME...]                remove them
//	soft-roce list                          list them
//
// The exit status is that of the command in the VM, or 125 if soft-roce itself failed.
//
// The program is also the VM's init, so it must be linked statically.
package main
