//go:build linux

package storm_test

import (
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs/shm"
)

// world is what carries the values of a storm.
type world struct {
	name  string
	kinds []string // of devices of the processes, beside gRPC
	same  bool     // each process has all of them
	carry []string // devices, or grpc, that must have carried some
}

// wireGRPC is the name of gRPC among devices, and roceDevice that of the loopback interface.
const (
	wireGRPC   = "grpc"
	roceDevice = "roce-lo"
)

var worlds = []world{
	{name: "grpc", carry: []string{wireGRPC}},
	{name: "roce", kinds: []string{server.ProviderRoCE}, carry: []string{roceDevice}},
	{name: "tcp", kinds: []string{server.ProviderTCP}, carry: []string{"tcp0"}},
	{name: "shm", kinds: []string{server.ProviderSHM}, carry: []string{shm.DeviceName}},
	{name: "all", kinds: []string{server.ProviderSHM, server.ProviderTCP, server.ProviderRoCE}, carry: []string{shm.DeviceName, "tcp0"}},
}

// firstLife is the number of the first process of a task.
const firstLife = 1

// has reports whether processes may have this kind of device. Every world has "".
func (w world) has(kind string) bool { return kind == "" || slices.Contains(w.kinds, kind) }

// provider returns the setting provider of a process. With several kinds and faults, unless w.same, each life of a
// task may be without some of them, so that routes come and go with processes too. In their first lives all
// have all, but task 0 the first kind: so the first two carry values whatever is drawn.
func (w world) provider(seed uint64, task, life int, faults bool) string {
	kinds := slices.Clone(w.kinds)
	switch {
	case len(kinds) <= 1 || !faults || w.same:
	case life == firstLife && task == 0:
		kinds = kinds[1:]
	case life > firstLife:
		drawn := mix(seed, uint64(task), uint64(life), 2) //nolint:gosec // only hashed
		if drawn%3 != 0 {
			without := int(drawn / 3 % uint64(len(kinds))) //nolint:gosec // an index
			kinds = slices.Delete(kinds, without, without+1)
		}
	}
	return strings.Join(kinds, ",")
}
