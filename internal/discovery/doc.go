// Package discovery finds what there is for RDMA on this host and chooses from
// it: devices, their ports, the ports' GIDs and netdevs, with the NUMA node, the
// MTU and the version of RoCE; and says why it took what it took, and why none
// of the others.
//
//	sysfs ─────┐
//	netlink ───┼─► System.Read ──► Inventory ──► Choose(Want) ──► Choice, or why nothing can be used
//	rdmamap ───┘                                                   │
//	                                          Again, PathMTU: what follows from it
//
// Reading needs no privilege and opens no device. What cannot be read is a
// Problem of the device, or an error: never a zero, an empty list or a nil that
// looks as if nothing were there. Choosing is pure: the same inventory and the
// same wish give the same choice, in the same words.
//
// A port's GID table is sparse: an index is an index into the table, not a count
// of what is in it. It changes when an address or a link does (Again).
package discovery
