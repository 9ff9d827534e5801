// Package roce is RDMA without an RDMA device: a RoCEv2 endpoint in user space, on UDP
// sockets. It communicates with other devices of this package, with the kernel's
// Soft-RoCE (rxe) and with NICs. It needs no privilege, no kernel module and no C. Each
// network interface is a device, named "roce-" and the interface, with one port. The
// port's GID table has the interface's addresses.
//
//	        PostSend                                      completions
//	           │                                               ▲
//	qp ────► machine (requester.go, responder.go) ─────────────┤
//	           │ nextPacket              ▲ handlePacket        │
//	           ▼                         │                    cq
//	        flow (turns.go, batch.go)  endpoint
//	           │ super-packets           ▲ datagrams
//	           ▼                         │
//	        package udp                package udp
//
// A machine is a queue pair of the specification as a pure state machine, which is tested
// on virtual time. An endpoint is a local address with its sockets; its only goroutine
// receives. A flow carries everything from one sending socket to one peer.
//
// A post, an ACK or a timer triggers sending, on its own goroutine. There are no other
// goroutines than those of endpoints, and no timer runs while nothing is in flight.
//
// # Security
//
// RoCE has neither secrecy nor authenticity: an attacker on the path can read everything
// and forge packets. An attacker elsewhere has to guess a queue pair number (24 bits), a
// PSN within the window, for a write a key (32 bits), and between two devices of this
// package the address and port of the peer. All of these are random. The ICRC detects
// damage, not forgery. On IPv4 it covers the identification of the IP header, which a UDP
// socket does not deliver, so a packet is accepted if its ICRC is right for any
// identification that its sender may use (package rocewire).
package roce
