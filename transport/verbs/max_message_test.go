package verbstransport_test

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// portLimit is a device whose ports report a given maximum message size.
type portLimit struct {
	verbs.Device
	most uint32
}

func (d portLimit) Port(n uint8) (verbs.PortInfo, error) {
	info, err := d.Device.Port(n)
	info.MaxMessage = d.most
	return info, err
}

// TestWritesFitBothPorts: no post is longer than the maximum message size of either port.
func TestWritesFitBothPorts(t *testing.T) {
	const size, small = 2*mib + 5, 256 * kib
	for name, tt := range map[string]struct {
		device verbstest.DeviceOptions // refuses longer posts
		says   map[int]uint32          // maximum message size that the port of a task reports
		chunk  int
		want   uint64
	}{
		"both ports":          {verbstest.DeviceOptions{MaxMessage: small}, nil, 0, small},
		"the sender's port":   {verbstest.DeviceOptions{}, map[int]uint32{0: 100_000}, 0, 100_000},
		"the receiver's port": {verbstest.DeviceOptions{}, map[int]uint32{1: 100_000}, 0, 100_000},
		"no bound but ours":   {verbstest.DeviceOptions{}, nil, 0, 512 * kib},
		"less was set":        {verbstest.DeviceOptions{MaxMessage: small}, nil, 64 * kib, 64 * kib},
	} {
		t.Run(name, func(t *testing.T) {
			o, spies := watched(clusterOptions{require: true, fabric: verbstest.Options{Devices: []verbstest.DeviceOptions{tt.device}},
				tune: func(task cluster.Task, o *verbstransport.Options) {
					o.Chunk, o.Outstanding = tt.chunk, 0
					if most, ok := tt.says[task.Index]; ok {
						o.Device = portLimit{o.Device, most}
					}
				}})
			s := newStage(t, o)
			from, to := s.pair()
			for i := range 3 {
				k := from.key(to, "v")
				from.send(int64(i+1), k, s.shaped(from.transport.Allocator(), uint64(i), tensor.Uint8, size))
				to.recv(int64(i+1), k).value().Release()
			}
			if got := spies.of(from).tally(); got.Longest != tt.want || got.Bytes != 3*size {
				t.Errorf("the longest of the posts has %d bytes, want %d; %d bytes were written", got.Longest, tt.want, got.Bytes)
			}
			if l := to.connectionTo(from.task); l.Stats.Breaks != 0 {
				t.Errorf("%d channels broke: %v", l.Stats.Breaks, l.Reason)
			}
		})
	}
}

// TestWritesOverSharedMemory: a long content takes long writes, since they are copied past the caches.
func TestWritesOverSharedMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		size int
		most uint32 // maximum message size of the ports
		want uint64
	}{
		"a long content":         {8 * mib, 0, 4 * mib},
		"a shorter one":          {8*mib - 1, 0, 512 * kib},
		"more than a port takes": {8 * mib, mib, mib},
	} {
		t.Run(name, func(t *testing.T) {
			o, spies := watched(clusterOptions{require: true, fixed: []verbs.LinkLayer{verbs.LinkShared}, wrapFixed: true,
				tune: func(_ cluster.Task, o *verbstransport.Options) {
					o.Chunk, o.Outstanding = 0, 0
					if tt.most > 0 {
						o.Fixed[0].Device = portLimit{o.Fixed[0].Device, tt.most}
					}
				}})
			s := newStage(t, o)
			from, to := s.pair()
			from.overRoute(to, "shm")
			k := from.key(to, "v")
			from.send(1, k, s.shaped(from.transport.Allocator(), 1, tensor.Uint8, int64(tt.size)))
			to.recv(1, k).value().Release()
			if got := spies.of(from).tally(); got.Longest != tt.want {
				t.Errorf("the longest of the posts has %d bytes, want %d", got.Longest, tt.want)
			}
		})
	}
}

// TestPortTooSmallForMessages: a port that does not support the messages of a channel is
// refused at start, with an error that says what to change.
func TestPortTooSmallForMessages(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{MaxMessage: 8 * kib}}})
	defer f.Close()
	device, err := f.Provider("a").Open("mem0")
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	gid, err := address(device)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verbstransport.New(verbstransport.Options{PortOptions: verbstransport.PortOptions{Device: device, Address: gid, Path: verbs.Path{Port: 1}}})
	if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "mem0 port 1 supports messages of at most 8192 bytes, and those of a channel have up to 12288: lower the setting eager-limit") {
		t.Errorf("%v", err)
	}
}
