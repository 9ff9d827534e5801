package devices

import "time"

// RDMA chooses the RDMA device, and sets how queue pairs send: the settings rdma.*. The zero values have
// the meaning that docs/settings.md describes.
type RDMA struct {
	// Device is the name of an RDMA device or a network device, or an address of this host; empty, like a
	// Port of 0 and a GIDIndex of nil, for the best one.
	Device   string
	Port     int
	GIDIndex *int
	// MTU is the largest payload of a packet in bytes; 0: that of the port.
	MTU                                   int
	TrafficClass, ServiceLevel, PKeyIndex int
	// Timeout is how long a device waits for an acknowledgement; 0: the default of the provider. Retry is the
	// number of retransmissions.
	Timeout time.Duration
	Retry   *int
	// QueuePairs is their number for each peer; 0: the default of the provider.
	QueuePairs int
}
