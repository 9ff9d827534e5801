package discovery

import (
	"encoding/binary"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// PFC is how a network device pauses single priorities (IEEE 802.1Qbb): without it,
// or notifications of congestion, packets of RoCE are dropped where a queue is full.
type PFC struct {
	// On has a bit for each priority that is paused, from bit 0.
	On uint8
	// Sent and Received count pauses, in each priority.
	Sent, Received [8]uint64
}

// Priorities are those that are paused.
func (p PFC) Priorities() []int {
	var on []int
	for i := range 8 {
		if p.On>>i&1 == 1 {
			on = append(on, i)
		}
	}
	return on
}

// PFC asks how a netdev pauses priorities. errors.ErrUnsupported: its driver does
// not tell, or has nothing like it.
func (s System) PFC(netdev string) (PFC, error) {
	if s.Netlink == nil {
		return PFC{}, verbs.Errorf("ask for PFC of", netdev, verbs.ErrUnavailable, "there is nobody to ask here")
	}
	return s.Netlink.PFC(netdev)
}

// The numbers of <linux/dcbnl.h> that are used here.
const (
	dcbIEEEGet  = 21 // DCB_CMD_IEEE_GET
	dcbIfname   = 1  // DCB_ATTR_IFNAME
	dcbIEEE     = 13 // DCB_ATTR_IEEE
	dcbIEEEPFC  = 2  // DCB_ATTR_IEEE_PFC
	dcbHeader   = 4  // struct dcbmsg
	pfcEnabled  = 1  // offsets in struct ieee_pfc
	pfcRequests = 8
	pfcInds     = 72
	pfcSize     = 136
)

// parsePFC takes struct ieee_pfc out of the answer to DCB_CMD_IEEE_GET. found is
// false when the driver has no such thing.
func parsePFC(b []byte) (p PFC, found bool, err error) {
	if len(b) < dcbHeader {
		return PFC{}, false, fmt.Errorf("netlink: an answer of %d bytes about DCB", len(b))
	}
	all, err := attributes(b[dcbHeader:])
	if err != nil {
		return PFC{}, false, err
	}
	for _, a := range all {
		if a.kind != dcbIEEE {
			continue
		}
		parts, err := attributes(a.value)
		if err != nil {
			return PFC{}, false, err
		}
		for _, part := range parts {
			if part.kind != dcbIEEEPFC {
				continue
			}
			if len(part.value) < pfcSize {
				return PFC{}, false, fmt.Errorf("netlink: %d bytes about PFC, want %d", len(part.value), pfcSize)
			}
			p.On = part.value[pfcEnabled]
			for i := range 8 {
				p.Sent[i] = binary.NativeEndian.Uint64(part.value[pfcRequests+8*i:])
				p.Received[i] = binary.NativeEndian.Uint64(part.value[pfcInds+8*i:])
			}
			return p, true, nil
		}
	}
	return PFC{}, false, nil
}
