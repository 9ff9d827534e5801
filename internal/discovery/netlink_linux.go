package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/tryst-rdma/tryst/verbs"
)

// netlinkRDMA is NETLINK_RDMA of <linux/netlink.h>.
const netlinkRDMA = 20

// dumpTries is how often a list is asked for again when a device came or went
// while the kernel told it.
const dumpTries = 5

// kernelNetlink asks this host's kernel. Each request opens a socket of its own.
// The requests are of the netlink module; what comes back is parsed here, since
// its own RDMA calls drop errors of parsing and have no ports.
type kernelNetlink struct{}

// request sends one and returns the attributes of each message that comes back.
func request(command, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	for try := 1; ; try++ {
		r := nl.NewNetlinkRequest(rdmaNLDev<<nl.RDMA_NL_GET_CLIENT_SHIFT|command, flags)
		for _, a := range attrs {
			r.AddData(a)
		}
		msgs, err := r.Execute(netlinkRDMA, 0)
		switch {
		case err == nil:
			return msgs, nil
		case errors.Is(err, netlink.ErrDumpInterrupted) && try < dumpTries:
		case errors.Is(err, syscall.EPROTONOSUPPORT):
			return nil, verbs.Errorf("netlink", "", verbs.ErrUnavailable, "this kernel has no RDMA, or its module ib_core is not loaded")
		default:
			return nil, fmt.Errorf("netlink: %w", err)
		}
	}
}

// one is a request with one message as its answer.
func one(command int, attrs ...*nl.RtAttr) ([]byte, error) {
	msgs, err := request(command, syscall.NLM_F_ACK, attrs...)
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("netlink: the kernel answered with %d messages, want 1", len(msgs))
	}
	if err != nil {
		return nil, err
	}
	return msgs[0], nil
}

// dump is a request for a list.
func dump[T any](parse func([]byte) (T, error), command int, attrs ...*nl.RtAttr) ([]T, error) {
	msgs, err := request(command, syscall.NLM_F_ACK|syscall.NLM_F_DUMP, attrs...)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(msgs))
	for i, m := range msgs {
		if all[i], err = parse(m); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func device(index uint32) *nl.RtAttr {
	return nl.NewRtAttr(attrDevIndex, binary.NativeEndian.AppendUint32(nil, index))
}

func (kernelNetlink) Devices() ([]NetlinkDevice, error) { return dump(parseDeviceMessage, cmdGet) }

func (kernelNetlink) Ports(index uint32) ([]NetlinkPort, error) {
	return dump(parsePortMessage, cmdPortGet, device(index))
}

func (kernelNetlink) Objects(index uint32) (map[string]uint64, error) {
	b, err := one(cmdResGet, device(index))
	if err != nil {
		return nil, err
	}
	return parseObjectsMessage(b)
}

func (kernelNetlink) Driver(index uint32) (NetlinkDriver, error) {
	b, err := one(cmdGetChardev, device(index), nl.NewRtAttr(attrChardevType, nl.ZeroTerminated("uverbs")))
	if err != nil {
		return NetlinkDriver{}, err
	}
	return parseDriverMessage(b)
}

func (kernelNetlink) Exclusive() (bool, error) {
	b, err := one(cmdSysGet)
	if err != nil {
		return false, err
	}
	const unsaid = 0xff
	mode := uint8(unsaid)
	if err := fields(b, map[uint16]any{attrNetnsMode: &mode}); err != nil {
		return false, err
	}
	if mode > 1 {
		return false, fmt.Errorf("netlink: the kernel did not say the mode of network namespaces")
	}
	return mode == 0, nil
}
