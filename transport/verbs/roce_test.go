package verbstransport_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// overRoce is a cluster over the user-space device of the loopback interface, at an
// address. Each task has its own sockets and is disturbed by its gate. gRPC is used only
// for the bootstrap.
func overRoce(t testing.TB, at netip.Addr) clusterOptions {
	return clusterOptions{
		require: true,
		open: func(cluster.Task) (verbs.Device, error) {
			return roce.New(roce.Options{}).Open("roce-lo")
		},
		gate: true,
		tune: func(_ cluster.Task, o *verbstransport.Options) {
			o.Backoff = gateBackoff
			gids, err := o.Device.GIDs(1)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range gids {
				if g.GID.Addr() == at {
					o.Address = g
					return
				}
			}
			t.Fatalf("the loopback interface has no address %v, but %v", at, gids)
		},
		path: verbs.Path{Port: 1, Timeout: verbs.TimeoutCode(20 * time.Millisecond), Retry: 6, RNRRetry: 6},
	}
}

// TestRoceSuite runs the suite over the user-space device.
func TestRoceSuite(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overRoce(t, local4)), MaxSize: largest, Registered: true, Parallel: true})
}

// TestRoceSuiteIPv6 is TestRoceSuite over IPv6.
func TestRoceSuiteIPv6(t *testing.T) {
	transporttest.Run(t, transporttest.Suite{New: newCluster(overRoce(t, local6)), MaxSize: 4 << 20, Registered: true, Parallel: true, Only: smoke()})
}

var (
	local4 = netip.MustParseAddr("127.0.0.1")
	local6 = netip.IPv6Loopback()
)

// TestRoceSizes transfers up to 1 GiB over IPv4 and IPv6, in chunks of the default size
// and with the default timeouts. The limit is 64 MiB with -short, and 4 MiB under the
// race detector, which checks each byte.
func TestRoceSizes(t *testing.T) {
	size := int64(gib)
	switch {
	case underRace:
		size = largest
	case testing.Short():
		size = 64 * mib
	}
	for name, at := range map[string]netip.Addr{"IPv4": local4, "IPv6": local6} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Suite{
				New: newCluster(large(overRoce(t, at))), MaxSize: size, Registered: true, Only: []string{"Size"},
			})
		})
	}
}

// large configures a cluster for large tensors: default chunks, and pools that hold one
// tensor.
func large(o clusterOptions) clusterOptions {
	tune := o.tune
	o.gate, o.path = false, patient
	o.tune = func(task cluster.Task, v *verbstransport.Options) {
		tune(task, v)
		v.Chunk, v.Outstanding = 0, 0
		v.Memory = regmem.Options{SendLimit: 5 * gib, RecvLimit: 5 * gib}
	}
	return o
}

// TestRoceLarge transfers 1 GiB and more than 4 GiB, for lengths and offsets beyond 32 bits. The
// sender has written only the marks, so that only the receiver needs all pages. With
// -short it transfers 256 MiB, and under the race detector 64 MiB.
func TestRoceLarge(t *testing.T) {
	sizes := map[string]int{"1GiB": gib, "4GiB": 4*gib + 4096 + 5}
	switch {
	case underRace:
		sizes = map[string]int{"64MiB": 64 * mib}
	case testing.Short():
		sizes = map[string]int{"256MiB": 256 * mib}
	}
	for name, at := range map[string]netip.Addr{"IPv4": local4, "IPv6": local6} {
		for what, size := range sizes {
			t.Run(name+"/"+what, func(t *testing.T) {
				need := size + size/4
				if underRace { // the shadow memory of the race detector
					need = 4 * size
				}
				roomFor(t, need)
				movesMarks(t, at, size)
			})
		}
	}
}

// roomFor skips a test for which the machine has too little memory (proc(5), meminfo).
func roomFor(t *testing.T, need int) {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return // not Linux
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			var kb int
			if _, err := fmt.Sscan(rest, &kb); err == nil && kb*kib < need {
				t.Skipf("too little memory: %d MiB are free, and it needs %d", kb/kib, need/mib)
			}
		}
	}
}

// movesMarks sends a tensor of zeros with a few marks.
func movesMarks(t *testing.T, addr netip.Addr, size int) {
	s := newStage(t, large(overRoce(t, addr)))
	from, to := s.pair()
	x, err := tensor.Allocate(from.transport.Allocator(), tensor.Uint8, tensor.Vector(size))
	if err != nil {
		t.Fatal(err)
	}
	marks := 0
	for i, at := range []int{0, 1<<29 + 77, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<32 + 4095, size - 1} {
		if at < size {
			x.Bytes()[at] = byte(i + 1)
			marks++
		}
	}
	begin := time.Now()
	k := from.key(to, "v")
	from.send(1, k, x.Retain())
	r := to.recv(1, k)
	var o outcome
	select {
	case o = <-r.outcome:
	case <-time.After(largeTime):
		t.Fatalf("it has not come after %v", largeTime)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	y := o.value.Tensor
	defer y.Release()
	t.Logf("%.0f MB/s", float64(size)/1e6/time.Since(begin).Seconds())
	if y.Size() != int64(size) {
		t.Fatalf("%v came", y)
	}
	got, zeros := make(map[int]byte), make([]byte, mib)
	for off := 0; off < size; off += mib {
		part := y.Bytes()[off:min(off+mib, size)]
		if bytes.Equal(part, zeros[:len(part)]) {
			continue
		}
		for i, b := range part {
			if b != 0 {
				got[off+i] = b
			}
		}
	}
	for at, b := range got {
		if x.Bytes()[at] != b {
			t.Errorf("byte %d is %d, want %d", at, b, x.Bytes()[at])
		}
	}
	if len(got) != marks {
		t.Errorf("%d bytes are set, want %d", len(got), marks)
	}
	x.Release()
}

// largeTime bounds the transfer of 4 GiB, for a loaded machine with the race detector.
const largeTime = 8 * time.Minute
