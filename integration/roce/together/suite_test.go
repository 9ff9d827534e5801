//go:build rxe && linux && cgo

package together_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestRxeSuite: the provider suite with the kernel's device on one end and our device
// on the other.
func TestRxeSuite(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	for _, d := range []direction{kernelToUs, usToKernel} {
		f := family(0)
		if d == usToKernel {
			f = 1
		}
		t.Run(fmt.Sprintf("%v %v", d, f), func(t *testing.T) { verbstest.Run(t, bed.env(t, f, d)) })
	}
}

// route is a kind of path.
type route struct {
	direction direction
	family    family
	mtu       verbs.MTU
	loss      float32 // percent, in each direction
}

func (r route) String() string {
	return fmt.Sprintf("%v %v MTU %d loss %v%%", r.direction, r.family, r.mtu, r.loss)
}

// routes returns all combinations except for the family, which alternates so that each
// family occurs with each value of the others.
func routes() (list []route) {
	for i := range 8 {
		r := route{usToKernel, family((i ^ i>>1 ^ i>>2) & 1), verbs.MTU1024, 0}
		if i&1 != 0 {
			r.direction = kernelToUs
		}
		if i&2 != 0 {
			r.mtu = verbs.MTU4096
		}
		if i&4 != 0 {
			r.loss = 1
		}
		list = append(list, r)
	}
	return list
}

// TestRxeData: every operation with messages of every size, over every kind of path. With -short it is half of the
// paths, which have each direction, family, MTU and loss.
func TestRxeData(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	for _, r := range routes() {
		if testing.Short() && (r.mtu == verbs.MTU4096) != (r.loss > 0) {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			bed.lose(t, r.loss)
			env := bed.env(t, r.family, r.direction)
			env.Groups = []string{"Data"}
			env.Path = verbs.Path{MTU: r.mtu, Timeout: verbs.TimeoutCode(500 * time.Millisecond)}
			env.Sizes = []int{64 << 10, 1 << 20, 16 << 20}
			if r.loss > 0 {
				// In a READ the kernel's device notices each loss but the first by its timeout. Of 16 MiB there are 160.
				env.Sizes[2] = 4 << 20
			}
			verbstest.Run(t, env)
		})
	}
}
