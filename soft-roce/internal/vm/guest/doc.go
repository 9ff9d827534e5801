// Package guest runs inside the VM of package vm.
//
//	init    process 1: loads modules, mounts the host's root, adds the RDMA devices, reaps orphans, powers off
//	agent   its child: reads frames from the serial port, runs one command at a time
//
// They are two processes, because process 1 must wait for every orphan, and would take the exit
// status of a command from the code that waits for it.
package guest
