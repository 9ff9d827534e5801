// Package guest is what runs inside the VM of package vm, as its first process and as the agent that runs commands for the host.
//
//	init    process 1: loads modules, mounts the host's root, makes the RDMA devices, buries the dead, switches off
//	agent   its child: reads frames from the serial port, runs one command after the other
//
// They are two processes since a process 1 must wait for every orphan, which would take the exit status from whoever started a
// command.
package guest
