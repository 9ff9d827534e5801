package checkpoint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// How the tensors of a pull came. What a transport has carried is counted also if it came damaged and
// was sent again: a caller who wants no byte over gRPC finds here each one that did.

// PulledTensor tells how a tensor of a pull came.
type PulledTensor struct {
	Name string `json:"name"`
	// Arrivals has an element for each transport and device that has carried the tensor, or a
	// piece of it, the one with the most bytes first. Duration is the sum of the receives,
	// of which several may be under way at once. Attempts counts all requests for the
	// tensor; a receive that failed with its session counts as one.
	Arrivals []rendezvous.Arrival `json:"arrivals"`
}

// Carried is what one transport has carried of a pull.
type Carried struct {
	// Tensors is how many tensors the transport has carried, or pieces of them. A tensor whose
	// pieces took two transports is counted at both.
	Tensors int `json:"tensors"`
	// Arrival has the sums over these tensors; see PulledTensor.
	rendezvous.Arrival
}

// Over returns how many tensors a transport has carried, on all its devices: 0 for "grpc" says that
// each tensor came over verbs.
func (s *Summary) Over(transport string) (tensors int) {
	for _, c := range s.Carried {
		if c.Transport == transport {
			tensors += c.Tensors
		}
	}
	return tensors
}

// arrivals has the records of a pull. pull.mu guards it.
type arrivals struct {
	tensors map[int][]rendezvous.Arrival // of the tensors that have not come whole, by index in Manifest.Entries
	failed  map[int]int                  // receives of these that have failed since the last arrival
	sum     []Carried
}

// arrived takes note of a part of tensor i.
func (a *arrivals) arrived(i int, with rendezvous.Arrival) {
	with.Attempts += a.failed[i]
	delete(a.failed, i)
	if a.tensors == nil {
		a.tensors = make(map[int][]rendezvous.Arrival)
	}
	all := a.tensors[i]
	at := slices.IndexFunc(all, func(o rendezvous.Arrival) bool { return sameRoute(o, with) })
	if at < 0 {
		all, at = append(all, rendezvous.Arrival{Transport: with.Transport, Device: with.Device}), len(all)
		a.tensors[i] = all
	}
	add(&all[at], with)
}

// fails takes note that a receive of a part of tensor i has failed.
func (a *arrivals) fails(i int) {
	if a.failed == nil {
		a.failed = make(map[int]int)
	}
	a.failed[i]++
}

// whole returns the record of a tensor that is whole, and adds it to the sum.
func (a *arrivals) whole(i int) []rendezvous.Arrival {
	all := a.tensors[i]
	delete(a.tensors, i)
	for _, one := range all {
		at := slices.IndexFunc(a.sum, func(c Carried) bool { return sameRoute(c.Arrival, one) })
		if at < 0 {
			at = len(a.sum)
			a.sum = append(a.sum, Carried{Arrival: rendezvous.Arrival{Transport: one.Transport, Device: one.Device}})
		}
		a.sum[at].Tensors++
		add(&a.sum[at].Arrival, one)
	}
	slices.SortStableFunc(all, func(a, b rendezvous.Arrival) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all
}

// carried returns the sums, the transport with the most tensors first.
func (a *arrivals) carried() []Carried {
	all := slices.Clone(a.sum)
	slices.SortFunc(all, func(a, b Carried) int {
		return cmp.Or(cmp.Compare(b.Tensors, a.Tensors), strings.Compare(a.Transport, b.Transport), strings.Compare(a.Device, b.Device))
	})
	return all
}

func sameRoute(a, b rendezvous.Arrival) bool {
	return a.Transport == b.Transport && a.Device == b.Device
}

func add(sum *rendezvous.Arrival, a rendezvous.Arrival) {
	sum.Bytes += a.Bytes
	sum.Duration += a.Duration
	sum.Attempts += a.Attempts
}
