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
	name      string
	providers []string // of the processes, beside gRPC
	same      bool     // each process has all of them
	carry     []string // devices, or grpc, that must have carried some
}

// routeGRPC stands for gRPC among devices, and roceDevice that of the loopback interface.
const (
	routeGRPC  = "grpc"
	roceDevice = "roce-lo"
)

var worlds = []world{
	{name: "grpc", carry: []string{routeGRPC}},
	{name: "roce", providers: []string{server.ProviderRoCE}, carry: []string{roceDevice}},
	{name: "tcp", providers: []string{server.ProviderTCP}, carry: []string{"tcp0"}},
	{name: "shm", providers: []string{server.ProviderSHM}, carry: []string{shm.DeviceName}},
	{name: "all", providers: []string{server.ProviderSHM, server.ProviderTCP, server.ProviderRoCE}, carry: []string{shm.DeviceName, "tcp0"}},
}

// firstLife is the number of the first process of a task.
const firstLife = 1

// has reports whether processes may have devices of a provider. Every world has "".
func (w world) has(provider string) bool {
	return provider == "" || slices.Contains(w.providers, provider)
}

// provider returns the setting provider of a process. With several providers and faults, unless w.same, each life of a
// task may be without some of them, so that routes come and go with processes too. In their first lives all
// have all, but task 0 the first provider: so the first two carry values whatever is drawn.
func (w world) provider(seed uint64, task, life int, faults bool) string {
	providers := slices.Clone(w.providers)
	switch {
	case len(providers) <= 1 || !faults || w.same:
	case life == firstLife && task == 0:
		providers = providers[1:]
	case life > firstLife:
		drawn := mix(seed, uint64(task), uint64(life), 2) //nolint:gosec // only hashed
		if drawn%3 != 0 {
			without := int(drawn / 3 % uint64(len(providers))) //nolint:gosec // an index
			providers = slices.Delete(providers, without, without+1)
		}
	}
	return strings.Join(providers, ",")
}
