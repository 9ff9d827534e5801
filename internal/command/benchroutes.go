package command

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/timing"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

const (
	// routeWait bounds how long a route may take to carry its first tensor: more than a queue
	// pair waits for its connection.
	routeWait = 20 * time.Second
	// leastRounds are measured in any case, since fewer have no quartiles.
	leastRounds = 4
	// smallWarm and smallReceives are made of the smallest tensor, to time one. smallTime bounds
	// them on a path with a long round trip.
	smallWarm, smallReceives = 10, 100
	smallTime                = 3 * time.Second
)

// benchRoute is one route to the server, with a client of its own that has no other.
type benchRoute struct {
	name     string // routeGRPC, or a provider
	settings server.Config

	client      *server.Client
	task        cluster.Task // the server
	publication string
	req         checkpoint.PullRequest
	small       checkpoint.TensorInfo // the smallest tensor

	device string // that received
	rates  []float64
	took   []time.Duration // each receive of the small tensor, the shortest first
	err    error           // why it is not measured
}

// routeResult is the row of a route.
type routeResult struct {
	Route  string `json:"route"`
	Device string `json:"device,omitempty"`
	// Receive is the median time of a receive of Size bytes, in seconds.
	Receive float64 `json:"receive_seconds,omitempty"`
	Size    int64   `json:"receive_bytes,omitempty"`
	// Rate is the median of the pulls in 10^9 bytes a second, beside its quartiles.
	Rate   float64 `json:"gbytes_per_second,omitempty"`
	RateQ1 float64 `json:"gbytes_per_second_q1,omitempty"`
	RateQ3 float64 `json:"gbytes_per_second_q3,omitempty"`
	OfGRPC float64 `json:"of_grpc,omitempty"`
	Error  string  `json:"error,omitempty"`
}

func (r *benchRoute) result(grpc *benchRoute) routeResult {
	row := routeResult{Route: r.name, Device: r.device}
	if r.err != nil {
		row.Error = strings.Join(lines(r.err), "; ")
		return row
	}
	row.Receive, row.Size = rounded(r.took[len(r.took)/2].Seconds()), r.small.Bytes
	q1, median, q3 := quartiles(r.rates)
	row.RateQ1, row.Rate, row.RateQ3 = rounded(q1), rounded(median), rounded(q3)
	if _, rate, _ := quartiles(grpc.rates); rate > 0 {
		row.OfGRPC = rounded(median / rate)
	}
	return row
}

// rounded has as many digits as a measurement is worth.
func rounded(x float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	if err != nil {
		return x
	}
	return r
}

// quartiles returns those of bytes a second, in 10^9; zeros for none.
func quartiles(rates []float64) (q1, median, q3 float64) {
	if len(rates) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(rates))
	at := func(part float64) float64 { return sorted[int(part*float64(len(sorted)-1)+0.5)] / 1e9 }
	return at(0.25), at(0.5), at(0.75)
}

// measureRoutes measures all routes, in turns. The error is that of gRPC, which every route needs
// to connect; those of other routes are in their rows.
func measureRoutes(ctx context.Context, routes []*benchRoute, from, name string, bytes int64, each time.Duration) error {
	for i, r := range routes {
		if r.err = r.connect(ctx, from, name, bytes); r.err != nil && (i == 0 || ctx.Err() != nil) {
			return r.err
		}
	}
	var spent time.Duration
	for round := 0; round < leastRounds || spent < each*time.Duration(len(routes)); round++ {
		begin := time.Now()
		for i := range routes {
			if round%2 == 1 {
				i = len(routes) - 1 - i
			}
			if r := routes[i]; r.err == nil {
				r.err = r.pull(ctx)
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
		}
		spent += time.Since(begin)
	}
	for _, r := range routes {
		if r.err == nil {
			r.err = r.timeSmall(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return routes[0].err
}

// connect dials the server, and pulls once, without counting it: the first pull allocates memory.
func (r *benchRoute) connect(ctx context.Context, from, name string, bytes int64) (err error) {
	ctx, cancel := context.WithTimeout(ctx, routeWait)
	defer cancel()
	if r.client, err = server.Dial(ctx, r.settings, from, r.options()); err != nil {
		return err
	}
	if r.task, err = r.client.Server(ctx); err != nil {
		return err
	}
	if r.settings.Transport == server.TransportVerbs {
		if _, err := r.client.Probe(ctx, r.task); err != nil {
			return err
		}
	}
	m, err := r.client.Puller().Describe(ctx, name, "")
	if err != nil {
		return err
	}
	if len(m.Entries) == 0 || smallest(m).Bytes == 0 {
		return status.Errorf(status.FailedPrecondition, "publication %s has no tensor with content: name another one", m.Name)
	}
	r.publication, r.small = m.Name, smallest(m)
	r.req = checkpoint.PullRequest{Publication: name, Tensors: someTensors(m, bytes), Retry: -1, SkipDigests: true, Measurement: true}
	if err := r.pull(ctx); err != nil {
		return err
	}
	r.rates = nil
	return nil
}

// someTensors returns patterns for tensors of about so many bytes: the first ones that fit, or the
// smallest. It is nil for all.
func someTensors(m *checkpoint.Manifest, bytes int64) (patterns []string) {
	var sum int64
	for _, e := range m.Entries {
		if sum+e.Bytes <= bytes {
			sum += e.Bytes
			patterns = append(patterns, literal(e.Name))
		}
	}
	switch {
	case len(patterns) == len(m.Entries):
		return nil
	case sum == 0:
		return []string{literal(smallest(m).Name)}
	}
	return patterns
}

// smallest returns the smallest tensor with content, or one without if there is no other.
func smallest(m *checkpoint.Manifest) checkpoint.TensorInfo {
	return slices.MinFunc(m.Entries, func(a, b checkpoint.TensorInfo) int {
		switch {
		case a.Bytes == 0: // nothing moves
			return 1
		case b.Bytes == 0:
			return -1
		}
		return cmp.Compare(a.Bytes, b.Bytes)
	})
}

// literal is the pattern that matches only a name (path.Match).
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// pull pulls once and records the rate of the transfer.
func (r *benchRoute) pull(ctx context.Context) error {
	var s checkpoint.Summary
	req := r.req
	req.Summary = &s
	for t, err := range r.client.Puller().Pull(ctx, req) {
		if err != nil {
			return err
		}
		t.Release()
	}
	r.rates = append(r.rates, s.BytesPerSecond())
	for _, c := range s.Carried[:min(1, len(s.Carried))] {
		r.device = c.Device
	}
	return nil
}

// timeSmall times receives of the smallest tensor.
func (r *benchRoute) timeSmall(ctx context.Context) (err error) {
	if r.took, err = timing.Receives(ctx, r.client, r.publication, r.small.Name, smallWarm); err != nil {
		return err
	}
	n := min(smallReceives, max(1, int(smallTime/max(r.took[smallWarm/2], 1))))
	r.took, err = timing.Receives(ctx, r.client, r.publication, r.small.Name, n)
	return err
}

func (r *benchRoute) close(ctx context.Context) {
	if r.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = r.client.Close(ctx) // the server detects the end of the connection
}
