// Package softroce makes and removes the kernel's own RDMA devices, Soft-RoCE (the driver rdma_rxe): each lies on a network interface
// and speaks RoCEv2 over it, in software. It talks to the kernel through netlink and needs the rights to change the network
// (CAP_NET_ADMIN) and a kernel that has the driver. Where it has not, soft-roce/vm boots one that does.
//
//	netdev  v0 ──────veth────── v1        frames really travel, so tc and ip act on them
//	        │                    │
//	rdma    rxe0               rxe1       type rxe, one port each
//
// The removal of a device waits in the kernel until every process has closed it: a process never removes the link of a device
// that it has open (ARCHITECTURE.md section 6).
package softroce
