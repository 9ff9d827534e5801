package discovery

// Where things are in sysfs (Documentation/ABI/stable/sysfs-class-infiniband of
// the kernel), from its root.
const (
	classRDMA   = "class/infiniband"
	classUverbs = "class/infiniband_verbs"
	classNet    = "class/net"
	moduleDir   = "module"
)

// What a RoCE packet takes of the netdev's MTU, in bytes; the path MTU of the
// port is the largest of the five that fits into the rest.
const (
	// rxeHeaders is RXE_MAX_HDR_LENGTH (drivers/infiniband/sw/rxe/rxe_param.h).
	rxeHeaders = 80
	// nicHeaders is what iboe_get_mtu (include/rdma/ib_addr.h) subtracts for the
	// drivers of NICs: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4.
	nicHeaders = 96
)

// ipoibAddress is the length of the address of an IPoIB netdev: flags and queue
// pair 4, port GID 16 (RFC 4391 section 9.1.1).
const ipoibAddress = 20
