package discovery

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"

	"github.com/tryst-rdma/tryst/verbs"
)

// dcbMessage is struct dcbmsg of <linux/dcbnl.h>: family, command, padding.
type dcbMessage struct{ command uint8 }

func (dcbMessage) Len() int { return dcbHeader }
func (m dcbMessage) Serialize() []byte {
	return []byte{syscall.AF_UNSPEC, m.command, 0, 0}
}

// PFC implements Netlink.
func (kernelNetlink) PFC(netdev string) (PFC, error) {
	r := nl.NewNetlinkRequest(syscall.RTM_GETDCB, syscall.NLM_F_ACK)
	r.AddData(dcbMessage{dcbIEEEGet})
	r.AddData(nl.NewRtAttr(dcbIfname, nl.ZeroTerminated(netdev)))
	msgs, err := r.Execute(syscall.NETLINK_ROUTE, 0)
	unsupported := verbs.Errorf("ask for PFC of", netdev, errors.ErrUnsupported, "its driver does not tell")
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP):
		return PFC{}, unsupported
	case err != nil:
		return PFC{}, &verbs.Error{Op: "ask for PFC of", Object: netdev, Err: fmt.Errorf("netlink: %w", err)}
	case len(msgs) != 1:
		return PFC{}, &verbs.Error{Op: "ask for PFC of", Object: netdev, Err: fmt.Errorf("netlink: the kernel answered with %d messages, want 1", len(msgs))}
	}
	p, found, err := parsePFC(msgs[0])
	if err != nil {
		return PFC{}, &verbs.Error{Op: "ask for PFC of", Object: netdev, Err: err}
	}
	if !found {
		return PFC{}, unsupported
	}
	return p, nil
}
