// Package roce is RDMA without an RDMA device: a RoCEv2 endpoint in user space, on
// UDP sockets, that talks to others of its kind, to the kernel's Soft-RoCE and to
// NICs. It needs no privilege, no kernel module and no C. Each network interface
// is a device, "roce-" and its name, with one port, whose GID table has the
// interface's addresses.
//
//	        PostSend                                    completions
//	           │                                             ▲
//	qp ────► machine (requester.go, responder.go) ───────────┤
//	           │ next                    ▲ take              │
//	           ▼                         │                  cq
//	        flow (window.go, burst.go)  station
//	           │ super-packets           ▲ datagrams
//	           ▼                         │
//	        package udp                 package udp
//
// A machine is a queue pair as the specification has it, pure: it is tested on
// virtual time. A station is a local address with its sockets; its one goroutine
// takes what comes. A flow is all that goes from one sending socket to one peer.
// Whoever has a reason sends: who posts, the station that took an
// acknowledgement, a timer. There are no goroutines but the stations', and no
// timer runs while nothing is under way.
//
// # What it does not protect from
//
// RoCE has neither secrecy nor authenticity: who is on the path reads everything
// and can forge packets. Who is not has to guess the number of a queue pair (24
// bits), a PSN within its window, for a write a key (32 bits), and between two
// devices like this one the address and port of the peer: all of them are random.
// The ICRC finds damage, not malice. On IPv4 the receiver of a UDP socket does not
// see the identification of the IP header, which the ICRC covers, so that a packet
// passes that fits any of those that its sender can have (package wire).
package roce
