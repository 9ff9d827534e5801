package bench

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
)

// routes are the options of smoke for the routes. The RoCEv2 endpoint stands in for a provider
// that has no device here, so that every benchmark runs.
func routes(t *testing.T, only ...string) Options {
	o := smoke(t, only...)
	o.Routes, o.idlePeers, o.Inflight, o.standIns = true, 2, []int{2}, make(map[string]string)
	for _, provider := range []string{routeShm.provider, routeTCP.provider} {
		if !hasDevice(t, provider) {
			t.Logf("no device of %s: %s stands in", provider, server.ProviderRoCE)
			o.standIns[provider] = server.ProviderRoCE
		}
	}
	return o
}

// hasDevice reports whether a provider alone gives a server a device.
func hasDevice(t *testing.T, provider string) bool {
	t.Helper()
	c := server.Config{}
	c.Listen, c.Transport, c.Provider = loopback, "verbs", provider
	s, err := server.Start(t.Context(), c, server.Options{})
	if err != nil {
		return false
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	_, ok := s.Verbs()
	return ok
}

// TestBenchmarksOfRoutes runs each of them.
func TestBenchmarksOfRoutes(t *testing.T) {
	rows := map[string]int{
		"route-shm-copy": 2 * 2 * 2, "route-shm-grpc": 2 * 2, "route-shm-small": 2, "route-shm-wait": 2,
		"route-tcp": 2 * 2, "route-tcp-small": 2, "route-tls": 2 * 2,
		"route-idle-shm": 1, "route-idle-tcp": 1, "route-idle-roce": 1, "route-idle-grpc": 1,
	}
	for _, b := range ofRoutes() {
		_, call, step := strings.Cut(b.name, "-step-")
		if step {
			rows[b.name] = rowsOfSteps(b.route, call, "")
		}
		t.Run(b.name, func(t *testing.T) {
			of := func(row string) bool {
				rest, ok := strings.CutPrefix(row, b.name)
				return ok && (rest == "" || rest[0] == '-' && step)
			}
			got, err := Run(t.Context(), routes(t, b.name))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != rows[b.name] {
				t.Errorf("%d rows, want %d", len(got), rows[b.name])
			}
			for _, r := range got {
				idle := strings.HasPrefix(b.name, "route-idle-")
				if !of(r.Name) || r.file != routesFile || r.Count < 1 && !idle || r.Seconds <= 0 || r.Ratio <= 0 || r.itself != (r.Transport == "") {
					t.Errorf("row %+v", r)
				}
				if want := b.route.provider != "" && !r.itself; want != (r.Provider != "") {
					t.Errorf("row %+v: the provider", r)
				}
			}
			for k, target := range stepTargets {
				if of(k.name) && !slices.ContainsFunc(got, func(r Row) bool {
					return stepKey{r.Name, r.Size, r.Inflight, r.Baseline} == k && r.Target == target
				}) {
					t.Errorf("no row has the target %v of %+v", target, k)
				}
			}
		})
	}
}

// TestRouteThatIsMissing is left out, with its reason.
func TestRouteThatIsMissing(t *testing.T) {
	o := routes(t, "route-shm-wait", "route-shm-small")
	var said []string
	o.Progress = func(s string) { said = append(said, s) }
	s := &suite{Options: o}
	for _, b := range s.chosen() {
		s.now = b
		s.now.route = &route{name: "pigeon", provider: "pigeon"}
		if err := b.run(s, t.Context()); err != nil {
			t.Error(err)
		}
	}
	if text := strings.Join(said, "\n"); strings.Count(text, "left out: this build has no provider pigeon") != 2 || len(s.rows) > 0 {
		t.Errorf("%d rows; it said\n%s", len(s.rows), text)
	}
}

// TestAnotherRouteIsNotMeasured in place of the one that was asked for.
func TestAnotherRouteIsNotMeasured(t *testing.T) {
	s := &suite{Options: routes(t)}
	s.now = benchmark{name: "route-x", transport: "verbs", route: routeRoCE}
	err := s.withRoute(t.Context(), []int64{8}, func(ctx context.Context, p *session, targets []target) error {
		s.now.route = &route{name: "ib", provider: server.ProviderLibibverbs}
		return s.checkRoute(ctx, p.ours, targets[0])
	})
	if err == nil || !strings.Contains(err.Error(), `a receive over ib went over verbs, device "roce-`) {
		t.Errorf("another device: %v", err)
	}
	s.now.route = routeGRPC
	err = s.withRoute(t.Context(), []int64{8}, func(context.Context, *session, []target) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "a receive over grpc went over grpc") {
		t.Errorf("gRPC in place of verbs: %v", err)
	}
}

// TestRoutesAreMeasuredOnlyWhenAskedFor, and then nothing else is.
func TestRoutesAreMeasuredOnlyWhenAskedFor(t *testing.T) {
	for _, c := range []struct {
		routes bool
		only   []string
		want   bool
	}{
		{false, nil, false}, {true, nil, true}, {false, []string{"route-tcp"}, true}, {true, []string{"route-tcp"}, true}, {true, []string{recvName}, false},
	} {
		o := smoke(t, c.only...)
		o.Routes, o.Transports = c.routes, config.Transports()
		var of, other int
		for _, b := range (&suite{Options: o}).chosen() {
			if b.route != nil {
				of++
			} else {
				other++
			}
		}
		if (of > 0) != c.want || c.want && other > 0 || !c.routes && len(c.only) == 0 && other == 0 {
			t.Errorf("%+v: %d benchmarks of routes, %d others", c, of, other)
		}
	}
}

// TestTableOfTargets has a row for each comparison, with both sides' figures.
func TestTableOfTargets(t *testing.T) {
	rows := []Row{
		{Name: "route-tcp", Size: 1 << 20, Inflight: 4, Count: 1, GBytesPerSecond: 4, Baseline: RawTCP, Ratio: 1, OK: true, itself: true, Load: 0.25},
		{Name: "route-tcp", Size: 1 << 20, Inflight: 4, Count: 1, GBytesPerSecond: 3, Baseline: RawTCP, Ratio: 0.75, RatioQ1: 0.7, RatioQ3: 0.8, Target: 0.8, Better: Higher},
		{Name: "route-tcp-small", Size: 8, Inflight: 1, P50: 30, P90: 40, P99: 1500, Baseline: RawTCP, Ratio: 1, OK: true, itself: true},
		{Name: "route-tcp-small", Size: 8, Inflight: 1, P50: 60, P90: 70, P99: 80, Baseline: RawTCP, Ratio: 2, RatioQ1: 2, RatioQ3: 2, Target: 2.5, Better: Lower, OK: true},
		{Name: "route-shm-wait", Size: 8, Inflight: 1, P50: 12, P90: 13, P99: 14, Baseline: UnixSocket, Ratio: 0.7, RatioQ1: 0.7, RatioQ3: 0.7, Better: Lower, OK: true},
		{Name: "route-idle-tcp", Size: 4096, Inflight: 17, Count: 21, Seconds: 10, Baseline: OneCore, Ratio: 0.0012, RatioQ1: 0.0012, RatioQ3: 0.0012, OK: true},
	}
	var out strings.Builder
	if err := WriteTargets(&out, rows); err != nil {
		t.Fatal(err)
	}
	want := `WHAT             SIZE  IN FLIGHT  BESIDE       TARGET   OURS         P50 P90 P99          ITS        P50 P90 P99           RATIO   QUARTILES
route-tcp        1MiB  4          raw-tcp      >= 0.80  3.00 GB/s                         4.00 GB/s                        0.75    0.70 to 0.80  missed
route-tcp-small  8B    1          raw-tcp      <= 2.50  60 µs        60 µs, 70 µs, 80 µs  30 µs      30 µs, 40 µs, 1.5 ms  2.00    2.00 to 2.00  met
route-shm-wait   8B    1          unix-socket           12 µs        12 µs, 13 µs, 14 µs                                   0.70    0.70 to 0.70  reported
route-idle-tcp   4KiB  17         one-core              woken 2.1/s                                                        0.0012                reported
load average at the start 0.25
`
	if out.String() != want {
		t.Errorf("it is\n%s\nwant\n%s", &out, want)
	}
}

// TestRawTCPHasAsManyConnectionsAsContents: of two queue pairs one carries messages alone.
func TestRawTCPHasAsManyConnectionsAsContents(t *testing.T) {
	s := &suite{Options: smoke(t)}
	s.now = benchmark{transport: "verbs", route: routeTCP}
	for pairs, want := range map[int]int{0: 1, 1: 1, 2: 1, 3: 2, 5: 4} {
		s.Client.RDMA.QueuePairs = pairs
		if run := plainTCP.run(s, 16<<20, 4); run.Conns != want || run.Inflight != 4 || run.Baseline != RawTCP {
			t.Errorf("%d queue pairs: %+v, want %d connections", pairs, run, want)
		}
	}
}
