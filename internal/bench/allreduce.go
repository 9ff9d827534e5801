package bench

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/worker/collective"
)

// AllReduce is one member of a ring all-reduce whose members are processes of their own.
type AllReduce struct {
	// Addresses are those of all members, and Rank is that of this one.
	Addresses []string
	Rank      int
	// Provider has the devices, as the setting provider; "" is gRPC.
	Provider string
	// Bytes is the size of the tensor of float, and Rounds how often it is reduced. Two rounds more
	// come first and are not measured.
	Bytes  int64
	Rounds int
}

// unmeasured is how many rounds come before those that are measured: they make the connections, and
// touch the memory.
const unmeasured = 2

// Run takes part in the all-reduce, and returns how long each round took. Before each round the
// members wait for one another.
func (a AllReduce) Run(ctx context.Context) (rounds []time.Duration, err error) {
	c := config.Default()
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": a.Addresses})
	if err != nil {
		return nil, err
	}
	c.Cluster, c.Task, c.Listen = spec, cluster.Task{Job: "worker", Index: a.Rank}, a.Addresses[a.Rank]
	start := func() (*server.Server, error) { return server.Start(ctx, c, server.Options{}) }
	if a.Provider != "" {
		c.Transport, c.Provider, c.Fallback = "verbs", a.Provider, "none"
		start = func() (*server.Server, error) {
			v, err := server.StartVerbs(ctx, c, server.Options{})
			if err != nil {
				return nil, err
			}
			return v.Server, nil
		}
	}
	s, err := start()
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := s.Close(context.WithoutCancel(ctx)); err == nil {
			err = closed
		}
	}()
	g, err := s.Collectives().NewGroup(ctx, collective.GroupOptions{Key: 1, Size: len(a.Addresses)})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	in, err := tensor.Make[float32](s.Allocator(), a.Bytes/4)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	for i := range a.Rounds + unmeasured {
		if err := g.Barrier(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		out, err := g.AllReduce(ctx, in, collective.Add)
		if err != nil {
			return nil, err
		}
		if i >= unmeasured {
			rounds = append(rounds, time.Since(began))
		}
		out.Release()
	}
	return rounds, nil
}
