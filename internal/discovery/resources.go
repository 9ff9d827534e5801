package discovery

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// ResourceCounts are the objects of a device that the kernel knows, of all
// processes and of the kernel itself: the witness that nothing is left. Two of
// them compare with ==.
type ResourceCounts struct {
	QPs, CQs, MRs, PDs uint64
	CMIDs              uint64 // connections of the RDMA connection manager
	Contexts           uint64 // open devices; 0 from kernels before 5.8
	SRQs               uint64 // 0 from kernels before 5.18
}

func (c ResourceCounts) String() string {
	return fmt.Sprintf("%d QP, %d CQ, %d MR, %d PD, %d CM id, %d context, %d SRQ",
		c.QPs, c.CQs, c.MRs, c.PDs, c.CMIDs, c.Contexts, c.SRQs)
}

// Resources counts a device's objects on this host, as `rdma resource show` does.
func Resources(device string) (ResourceCounts, error) {
	s, err := Host()
	if err != nil {
		return ResourceCounts{}, err
	}
	return s.Resources(device)
}

// Resources counts a device's objects: verbs.ErrNotFound when there is no such
// device, verbs.ErrUnavailable without netlink or without RDMA in the kernel. An
// answer without the kinds that every kernel counts is an error, never a 0.
func (s System) Resources(device string) (ResourceCounts, error) {
	const op = "count the kernel's objects of"
	if s.Netlink == nil {
		return ResourceCounts{}, verbs.Errorf(op, device, verbs.ErrUnavailable, "netlink is not available")
	}
	links, err := s.Netlink.Devices()
	if err != nil {
		return ResourceCounts{}, &verbs.Error{Op: op, Object: device, Err: err}
	}
	var names []string
	for _, l := range links {
		if l.Name != device {
			names = append(names, l.Name)
			continue
		}
		counts, err := s.Netlink.Objects(l.Index)
		if err != nil {
			return ResourceCounts{}, &verbs.Error{Op: op, Object: device, Err: err}
		}
		for _, kind := range []string{"qp", "cq", "mr", "pd"} {
			if _, ok := counts[kind]; !ok {
				return ResourceCounts{}, verbs.Errorf(op, device, verbs.ErrUnavailable, "the kernel does not count its %ss", strings.ToUpper(kind))
			}
		}
		return ResourceCounts{
			QPs: counts["qp"], CQs: counts["cq"], MRs: counts["mr"], PDs: counts["pd"],
			CMIDs: counts["cm_id"], Contexts: counts["ctx"], SRQs: counts["srq"],
		}, nil
	}
	return ResourceCounts{}, verbs.Errorf(op, device, verbs.ErrNotFound, "there is no such device; there %s", listed(names, "is none"))
}

// listed is "are a, b", "is a", or the words for none.
func listed(names []string, none string) string {
	switch len(names) {
	case 0:
		return none
	case 1:
		return "is " + names[0]
	}
	return "are " + strings.Join(names, ", ")
}
