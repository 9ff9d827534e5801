//go:build rxe && linux && cgo

package together_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/integration/roce/internal/cabletest"
	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// build is the project's build directory.
const build = "../../../build"

// TestRxeCapture writes to build/together.pcap what the two devices send: data with 1%
// loss, rejected requests, and the end of a queue pair. It checks each packet; make
// check-capture checks them with another program.
func TestRxeCapture(t *testing.T) {
	const name = "together.pcap"
	if err := os.Remove(filepath.Join(build, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	bed := newTestbed(t, roce.Options{})
	cabletest.Segment(t, cabletest.OurNetdev)
	c := cabletest.NewCapture(t, cabletest.OurNetdev)
	end := c.Begin()
	for _, r := range routes() {
		if r.loss == 0 {
			continue
		}
		env := bed.env(t, r.family, r.direction)
		env.Path.MTU = r.mtu
		t.Run(r.String(), func(t *testing.T) {
			bed.lose(t, r.loss)
			env.Groups = []string{"Data"}
			verbstest.Run(t, env)
		})
		// A responder that has rejected a request sends nothing more. If its NAK were
		// lost, the requester would not learn of it.
		t.Run(r.String()+" Failure", func(t *testing.T) {
			env.Groups = []string{"Failure"}
			verbstest.Run(t, env)
		})
	}
	end()

	type sent struct {
		op   rocewire.Opcode
		ours bool
	}
	seen := make(map[sent]int)
	segments, invalid := 0, 0
	for _, r := range c.Records {
		p, _ := rocetest.ParseFrame(r.Frame)
		h, _, err := p.Check()
		ours := isOurs(p)
		if err != nil {
			if invalid++; invalid < 10 {
				t.Errorf("%v to %v: %v", p.From, p.To, err)
			}
			continue
		}
		seen[sent{h.Op, ours}]++
		if ours && p.Identification > 0 {
			segments++
		}
	}
	for op := rocewire.SendFirst; op <= rocewire.FetchAdd; op++ {
		for _, ours := range []bool{false, true} {
			if n := seen[sent{op, ours}]; n == 0 && op.Known() {
				t.Errorf("the capture has no %v (sent by our device: %v)", op, ours)
			}
		}
	}
	t.Logf("%d packets, %d of our device with an identification other than 0, %d invalid: %v",
		len(c.Records), segments, invalid, slices.Sorted(maps.Values(seen)))
	if segments == 0 {
		t.Error("no super-packet was sent")
	}
	c.Write(build, name)
}

func isOurs(p rocetest.Packet) bool {
	for _, a := range cabletest.OurAddrs() {
		if p.From.Addr() == a.Addr() {
			return true
		}
	}
	return false
}

// TestRxeSuperPackets: the first super-packet to the kernel's device has two packets,
// and longer ones are sent after it was acknowledged.
func TestRxeSuperPackets(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	for f := range family(2) {
		t.Run(f.String(), func(t *testing.T) {
			lengths := bed.lengths(t, f)
			i := slices.IndexFunc(lengths, func(n int) bool { return n > 1 })
			if i < 0 || lengths[i] != 2 || slices.Max(lengths) < 8 {
				t.Errorf("packets per datagram of our device: %v", lengths)
			}
		})
	}
}

// TestRxeWithoutOffloads: if the interface computes no checksums, the kernel takes no
// super-packets, and the device works without them.
func TestRxeWithoutOffloads(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	cabletest.NoChecksums(t, cabletest.Here{}, cabletest.OurNetdev)
	cabletest.NoChecksums(t, bed.first, cabletest.KernelNetdev)
	for f := range family(2) {
		t.Run(f.String(), func(t *testing.T) {
			if lengths := bed.lengths(t, f); slices.Max(lengths) > 1 {
				t.Errorf("packets per datagram of our device: %v", lengths)
			}
		})
	}
}

// lengths runs the suite's operations toward the kernel's device with a small MTU, and
// returns the number of packets of each datagram that our device sent.
func (bed *testbed) lengths(t *testing.T, f family) (packets []int) {
	t.Helper()
	const mtu = verbs.MTU1024
	c := cabletest.NewCapture(t, cabletest.OurNetdev)
	end := c.Begin()
	env := bed.env(t, f, usToKernel)
	env.Groups = []string{"Data"}
	env.Path.MTU = mtu
	verbstest.Run(t, env)
	end()
	for _, r := range c.Records {
		if p, _ := rocetest.ParseFrame(r.Frame); isOurs(p) {
			// A packet has at most mtu and 28 more bytes of headers.
			packets = append(packets, (len(p.Data)+int(mtu)-1)/(int(mtu)+28+4))
		}
	}
	if len(packets) == 0 {
		t.Fatal("nothing was sent")
	}
	return packets
}
