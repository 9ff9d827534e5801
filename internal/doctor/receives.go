package doctor

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/internal/timing"
	"github.com/tryst-rdma/tryst/server"
)

// How many receives measureReceives makes to set up the route and to time (at least leastReceives), for at most about how long,
// and of how many bytes at most: a longer tensor takes longer than a round trip.
const (
	firstReceives, timedReceives, leastReceives = 10, 100, 10
	receivesTime                                = 1500 * time.Millisecond
	smallTensor                                 = 64 << 10
)

// measureReceives replaces the times of m by those of receives, if the server publishes a small tensor.
// Client.Measure times acknowledgements, which a peer sends with a delay: that says little of a device whose
// round trip is much shorter. It times receives of the smallest tensor, as bench-routes does.
func measureReceives(ctx context.Context, c *server.Client, m *server.Measured) error {
	publication, small, err := smallest(ctx, c)
	if err != nil || small.Bytes == 0 {
		return err
	}
	took, err := timing.Receives(ctx, c, publication, small.Name, firstReceives)
	if err != nil {
		return err
	}
	n := min(timedReceives, max(leastReceives, int(receivesTime/max(took[firstReceives/2], 1))))
	if took, err = timing.Receives(ctx, c, publication, small.Name, n); err != nil {
		return err
	}
	m.SetTimes(took)
	if m.Bytes = small.Bytes; m.Expect > 0 {
		m.Expect = loss.TCPThroughput(m.MTU, m.Min, m.Loss())
	}
	return nil
}

// smallest returns the smallest tensor with content of the first publication that has one of at most
// smallTensor bytes. Without one, Bytes is 0.
func smallest(ctx context.Context, c *server.Client) (publication string, small checkpoint.TensorInfo, err error) {
	all, err := c.Puller().List(ctx)
	if err != nil {
		return "", small, err
	}
	for _, p := range all {
		d, err := c.Puller().Describe(ctx, p.Name, "")
		if err != nil {
			return "", small, err
		}
		for _, e := range d.Entries {
			if e.Bytes > 0 && e.Bytes <= smallTensor && (small.Bytes == 0 || e.Bytes < small.Bytes) {
				publication, small = p.Name, e
			}
		}
		if small.Bytes > 0 {
			break
		}
	}
	return publication, small, nil
}
