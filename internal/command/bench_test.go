package command

import (
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
)

// benchRows are the rows of bench --json, by route.
func benchRows(t *testing.T, out string) map[string]routeResult {
	t.Helper()
	rows := make(map[string]routeResult)
	for line := range strings.Lines(out) {
		var r routeResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		rows[r.Route] = r
	}
	return rows
}

// TestBenchComparesTheRoutesToAServer: each has a device, a bandwidth and the time of a small
// receive, and the ratio is to gRPC.
func TestBenchComparesTheRoutesToAServer(t *testing.T) {
	devices := map[string]string{"grpc": "", "roce": "roce-", "tcp": "tcp0"}
	if runtime.GOOS == "linux" {
		devices["shm"] = "shm0"
	}
	providers := strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(devices)), func(s string) bool { return s == routeGRPC }), ",")
	address := serve(t, generate(t), "--transport", "verbs", "--provider", providers)
	args := []string{"bench", "--routes", "--from", address, "--provider", providers, "--time", "1ms"}
	out := did(t, tryst(t, append(args, "--json")...))
	rows := benchRows(t, out)
	for name, device := range devices {
		r, ok := rows[name]
		if !ok || r.Error != "" || r.Rate <= 0 || r.RateQ1 > r.Rate || r.RateQ3 < r.Rate || r.Receive <= 0 || r.Size <= 0 || r.OfGRPC <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if device == "" && r.Device != "" || !strings.HasPrefix(r.Device, device) {
			t.Errorf("%s: its device is %q", name, r.Device)
		}
	}
	if len(rows) != len(devices) || rows["grpc"].OfGRPC != 1 {
		t.Errorf("want gRPC, at 1 of itself, and the providers that were asked for:\n%s", out)
	}
	for _, r := range rows {
		for _, x := range []float64{r.Receive, r.Rate, r.RateQ1, r.RateQ3, r.OfGRPC} {
			if rounded(x) != x {
				t.Errorf("%s: %v has more digits than a measurement is worth", r.Route, x)
			}
		}
	}
	table := did(t, tryst(t, args...))
	if heading, _, _ := strings.Cut(table, "\n"); !strings.Contains(heading, " µs  GB/s  QUARTILES GB/s  × GRPC") {
		t.Errorf("the columns have no units: %s", heading)
	}
	if lines := strings.Split(table, "\n"); len(lines) != len(devices)+2 || !strings.HasPrefix(lines[0], "ROUTE") || !strings.HasPrefix(lines[1], "grpc ") || !strings.HasPrefix(lines[2], "roce ") {
		t.Errorf("the table is\n%s", table)
	}
}

// TestBenchSaysWhyARouteIsNotUsed, and measures the others.
func TestBenchSaysWhyARouteIsNotUsed(t *testing.T) {
	address := serve(t, "--transport", "grpc", generate(t)) // it has no verbs
	rows := benchRows(t, did(t, tryst(t, "bench", "--routes", "--from", address, "--provider", "roce", "--time", "1ms", "--json")))
	if r := rows["grpc"]; r.Error != "" || r.Rate <= 0 {
		t.Errorf("grpc: %+v", r)
	}
	if r := rows["roce"]; r.Error == "" || r.Rate != 0 || r.OfGRPC != 0 {
		t.Errorf("roce: %+v, want why it is not used", r)
	}
}

// TestBenchRoutesHaveNoFallback: a client has one route only, or another would be measured in its
// place. --provider limits the routes.
func TestBenchRoutesHaveNoFallback(t *testing.T) {
	c := server.Config{}
	all := benchRoutesOf(c)
	if len(all) != len(config.Providers()) || all[0].name != routeGRPC {
		t.Errorf("%d routes, want gRPC and one for each provider but auto", len(all))
	}
	for _, r := range all[1:] {
		if s := r.settings; s.Transport != server.TransportVerbs || s.Fallback != "none" || s.Provider != r.name {
			t.Errorf("%s: transport %s, fallback %s, provider %s", r.name, s.Transport, s.Fallback, s.Provider)
		}
	}
	c.Provider = "roce,shm"
	if some := benchRoutesOf(c); len(some) != 3 || some[1].name != "roce" || some[2].name != "shm" {
		t.Errorf("%d routes, want gRPC, roce and shm", len(some))
	} else if c.RDMA.Device = "mlx5_0"; benchRoutesOf(c)[1].settings.RDMA.Device != "mlx5_0" || benchRoutesOf(c)[2].settings.RDMA.Device != "" {
		t.Error("the device that is named is RDMA, so it is that of roce and not of shm")
	}
}

func TestBenchNeedsAServer(t *testing.T) {
	failed(t, tryst(t, "bench", "--from", transporttest.FreeAddresses(t, 1)[0]), exitFailed, "tryst bench: ", "connection refused")
	r := tryst(t, "bench", "--routes=false", "--time", "0s", "--bytes", "1MB")
	if r.code != exitUsage || r.out != "" {
		t.Errorf("exit status %d\n%s", r.code, r.out)
	}
	for _, want := range []string{"--from is missing", "--routes=false: nothing is left to measure", "--time 0s: it must be above 0", `--bytes "1MB": `} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in\n%s", want, r.err)
		}
	}
}

// TestBenchPullsAboutSoManyBytes: the tensors that fit, or the smallest one, by names that may have
// the signs of patterns.
func TestBenchPullsAboutSoManyBytes(t *testing.T) {
	m := &checkpoint.Manifest{Entries: []checkpoint.TensorInfo{{Name: "a[0]*", Bytes: 10}, {Name: "big", Bytes: 100}, {Name: `b?\`, Bytes: 5}, {Name: "none"}}}
	for bytes, want := range map[int64]string{
		1000: "", 115: "", 114: `a\[0]\* big none`, 20: `a\[0]\* b\?\\ none`, 10: `a\[0]\* none`, 4: `b\?\\`,
	} {
		if got := strings.Join(someTensors(m, bytes), " "); got != want {
			t.Errorf("%d bytes: %s, want %s", bytes, got, want)
		}
	}
	if s := smallest(m); s.Bytes != 5 {
		t.Errorf("the smallest with content is %+v", s)
	}
}
