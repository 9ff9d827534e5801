package server

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tryst-rdma/tryst/internal/doctest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

var update = flag.Bool("update", false, "write the metrics of docs/metrics.md anew")

// metricsText is what a registry says.
func metricsText(r prometheus.Gatherer) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// metric is the value of a line, -1 when there is none.
func metric(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Error(err)
			}
			return v
		}
	}
	return -1
}

// wantWords checks that labels are names and words: a text has spaces.
func wantWords(t *testing.T, r prometheus.Gatherer) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); strings.HasPrefix(f.GetName(), "tryst_") && (len(v) > 100 || strings.ContainsAny(v, " ;,\"'")) {
					t.Errorf("%s{%s=%q} is a text", f.GetName(), l.GetName(), v)
				}
			}
		}
	}
}

// Of each peer and route: bytes, tensors, messages, times, retries; of verbs memory,
// channels and polls.
func TestVerbsMetrics(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(1, b, a, 1)
	peer := `peer="` + b.Task().String() + `"`
	text := metricsText(a.gatherer)
	for name, want := range map[string]float64{
		`tryst_received_tensors_total{` + peer + `,transport="verbs"}`:        1,
		`tryst_received_bytes_total{` + peer + `,transport="verbs"}`:          4,
		`tryst_receive_seconds_count{` + peer + `,transport="verbs"}`:         1,
		`tryst_receive_retries_total{` + peer + `,transport="verbs"}`:         0,
		`tryst_verbs_channel_state{` + peer + `,state="up"}`:                  1,
		`tryst_verbs_fallbacks_total{` + peer + `,reason="channel_broke"}`:    0,
		`tryst_verbs_fallbacks_total{` + peer + `,reason="no_channel"}`:       0,
		`tryst_verbs_breaks_total{` + peer + `}`:                              0,
		`tryst_verbs_queue_pairs{` + peer + `}`:                               2,
		`tryst_verbs_quarantined_bytes`:                                       0,
		`tryst_verbs_pool_exhausted`:                                          0,
		`tryst_route{` + peer + `,reason="",transport="verbs"}`:               1,
		`tryst_sent_tensors_total{` + peer + `,transport="verbs"}`:            0,
		`tryst_sent_bytes_total{peer="other",transport="verbs"}`:              0,
		`tryst_received_tensors_total{` + peer + `,transport="grpc"}`:         -1,
		`tryst_verbs_channel_state{` + peer + `,state="down"}`:                -1,
		`tryst_verbs_sent_messages_total{peer="no such peer in the cluster"}`: -1,
	} {
		if got := metric(t, text, name); got != want {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	// HELLO each way and the request, at least.
	for _, name := range []string{
		"tryst_verbs_sent_messages_total{" + peer + "}", "tryst_verbs_received_messages_total{" + peer + "}",
		"tryst_verbs_completions_total{" + peer + "}",
	} {
		if got := metric(t, text, name); got < 2 {
			t.Errorf("%s %v, want 2 at least", name, got)
		}
	}
	// A receiver that polls for itself may have taken every completion before its event woke anybody.
	// Nobody polls at a responder, so a request wakes it.
	w.exchange(2, a, b, 1)
	until(t, "a wake-up", func() bool { return metric(t, metricsText(a.gatherer), "tryst_verbs_wakeups_total{"+peer+"}") >= 1 })
	for _, name := range []string{
		"tryst_verbs_polls_total{" + peer + "}", "tryst_verbs_channel_generation{" + peer + "}", "tryst_verbs_message_bytes",
	} {
		if got := metric(t, text, name); got < 1 {
			t.Errorf("%s %v, want 1 at least", name, got)
		}
	}
	offered := func(v *VerbsServer, p string) float64 {
		return metric(t, metricsText(v.gatherer), `tryst_verbs_bootstraps_total{peer="`+p+`"}`)
	}
	if n := offered(a, b.Task().String()) + offered(b, a.Task().String()); n < 1 {
		t.Errorf("%v calls led to the channel", n)
	}
	if got := metric(t, metricsText(b.gatherer), `tryst_sent_bytes_total{peer="`+a.Task().String()+`",transport="verbs"}`); got != 4 {
		t.Errorf("the sender sent %v bytes", got)
	}
}

// A break shows as one; what is asked again counts as a retry and a fallback, with
// the route that it took, and no counter goes back.
func TestVerbsMetricsOfABreak(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(1, b, a, 1)
	peer := `peer="` + b.Task().String() + `"`
	grows := func(text string) (values []float64) {
		for _, name := range []string{
			"tryst_verbs_sent_messages_total{", "tryst_verbs_received_messages_total{", "tryst_verbs_completions_total{", "tryst_verbs_polls_total{",
			"tryst_verbs_bootstraps_total{", "tryst_verbs_breaks_total{",
		} {
			values = append(values, metric(t, text, name+peer+"}"))
		}
		return values
	}
	before := grows(metricsText(a.gatherer))
	w.fabric.Wires("host0", "host1").Cut()
	w.exchange(2, b, a, 2) // asked over the channel, and again over gRPC
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	text := ""
	for end := time.Now().Add(soon); ; <-ticks.C {
		text = metricsText(a.gatherer)
		now := grows(text)
		for i := range now {
			if now[i] < before[i] {
				t.Fatalf("a counter went back: %v and then %v", before, now)
			}
		}
		before = now
		if metric(t, text, `tryst_route{`+peer+`,reason="",transport="verbs"}`) != 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("verbs is still up:\n%s", text)
		}
	}
	for name, want := range map[string]float64{
		`tryst_received_tensors_total{` + peer + `,transport="grpc"}`:      1,
		`tryst_receive_retries_total{` + peer + `,transport="grpc"}`:       1,
		`tryst_receive_seconds_count{` + peer + `,transport="grpc"}`:       1,
		`tryst_verbs_fallbacks_total{` + peer + `,reason="channel_broke"}`: 1,
		`tryst_verbs_channel_generation{` + peer + `}`:                     0,
		`tryst_verbs_queue_pairs{` + peer + `}`:                            0,
	} {
		if got := metric(t, text, name); got != want {
			t.Errorf("%s %v, want %v", name, got, want)
		}
	}
	if strings.Contains(text, "QP 0x") {
		t.Errorf("the number of a queue pair is told:\n%s", text)
	}
	wantWords(t, a.gatherer)
	sent := metricsText(b.gatherer)
	if got := metric(t, sent, `tryst_sent_bytes_total{peer="`+a.Task().String()+`",transport="grpc"}`); got != 4 {
		t.Errorf("the sender says that %v bytes went over gRPC", got)
	}
	w.fabric.Wires("host0", "host1").Restore()
}

// TestVerbsMetricsOfFallbacks: each reason for which a receive takes another route counts,
// and so does what led to it.
func TestVerbsMetricsOfFallbacks(t *testing.T) {
	w := newVerbsTown(t, 2, verbstest.DeviceOptions{NoGoMemory: true}) // others need no room to send
	patient := func(c *Config) { c.RDMA.Timeout = 4 * time.Second }    // a link that is held breaks no channel
	small := func(c *Config) { c.RDMA.ArenaLimit = 8 << 20 }
	a, b := w.start(0, patient), w.start(1, patient, small)
	w.up(a, b.Task())
	w.up(b, a.Task())
	send := func(from, to *VerbsServer, name string, bytes int64) <-chan outcome {
		t.Helper()
		shape, err := tensor.NewShape(bytes)
		if err != nil {
			t.Fatal(err)
		}
		value, err := tensor.Allocate(tensor.Heap{}, tensor.Uint8, shape)
		if err != nil {
			t.Fatal(err)
		}
		defer value.Release()
		if err := from.Send(1, to.Task().String(), name, value, false); err != nil {
			t.Fatal(err)
		}
		return to.recv(1, from.Task().String(), name)
	}
	arrives := func(c <-chan outcome) {
		t.Helper()
		o := wait(t, c, "the value")
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.v.Tensor.Release()
	}
	reads := func(v, peer *VerbsServer, want map[string]float64) {
		t.Helper()
		text := metricsText(v.gatherer)
		for _, reason := range []string{"channel_broke", "no_channel", "no_memory", "peer_no_memory", "no_fit"} {
			name := `tryst_verbs_fallbacks_total{peer="` + peer.Task().String() + `",reason="` + reason + `"}`
			if got := metric(t, text, name); got != want[reason] {
				t.Errorf("%s %v, want %v", name, got, want[reason])
			}
		}
	}
	exhausted := func(v *VerbsServer) float64 { return metric(t, metricsText(v.gatherer), "tryst_verbs_pool_exhausted") }
	reads(a, b, nil)
	if n := exhausted(b); n != 0 {
		t.Errorf("pools were exhausted %v times", n)
	}
	arrives(send(a, b, "x", 9<<20))
	reads(b, a, map[string]float64{"no_memory": 1})
	received := exhausted(b)
	if received < 1 {
		t.Errorf("the receiving pool was exhausted %v times", received)
	}
	arrives(send(b, a, "x", 9<<20))
	reads(a, b, map[string]float64{"peer_no_memory": 1})
	if n := exhausted(b); n <= received {
		t.Errorf("the pools were exhausted %v times, before the sending one %v", n, received)
	}
	arrives(send(b, a, strings.Repeat("n", 100_000), 1))
	reads(a, b, map[string]float64{"peer_no_memory": 1, "no_fit": 1})

	quarantined := func() float64 { return metric(t, metricsText(a.gatherer), "tryst_verbs_quarantined_bytes") }
	arrives(send(b, a, "y", 1<<20)) // the next request for it brings its destination
	link := w.fabric.Wires("host0", "host1").Hold()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	a.RecvAsync(ctx, 1, b.Task().String(), "y", func(_ rendezvous.Value, err error) { ended <- err })
	if n := quarantined(); n != 0 {
		t.Errorf("%v bytes are in quarantine", n)
	}
	cancel()
	wantError(t, wait(t, ended, "the end of the receive"), status.Cancelled)
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); quarantined() != 1<<20; <-ticks.C { // the channel hears of the cancel beside the receiver
		if time.Now().After(end) {
			t.Fatalf("%v bytes are in quarantine, want %d", quarantined(), 1<<20)
		}
	}
	link.Release()
	for end := time.Now().Add(soon); quarantined() != 0; <-ticks.C {
		if time.Now().After(end) {
			t.Fatal("the memory stays in quarantine")
		}
	}

	link.Cut()
	leave, err := a.rdma.Transport.LeftGeneration(transport.Process{Name: b.Task().String(), Incarnation: b.Incarnation()}, a.Connections()[0].Generation)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	for end := time.Now().Add(soon); a.Connections()[0].Verbs; <-ticks.C {
		if time.Now().After(end) {
			t.Fatal("verbs is still up")
		}
	}
	arrives(send(b, a, "z", 8))
	reads(a, b, map[string]float64{"peer_no_memory": 1, "no_fit": 1, "no_channel": 1})
	link.Restore()
}

// TestMetricsTable: docs/metrics.md has every metric (go test -update writes its table anew).
func TestMetricsTable(t *testing.T) {
	w := newVerbsTown(t, 1)
	v, err := StartVerbs(t.Context(), w.settings(0), Options{Provider: w.provider(0)}) // with an allocator of its own
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close(context.Background())
	parts := regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)",.* constLabels: {((?:[^}"]|"(?:[^"\\]|\\.)*")*)}, variableLabels: {([^}]*)}`)
	var rows []string
	descs := make(chan *prometheus.Desc, 1024)
	v.metrics.Describe(descs)
	close(descs)
	for d := range descs {
		m := parts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%v is of another form", d)
		}
		labels := strings.Split(m[4], ",")
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
		row := fmt.Sprintf("| `%s` | %s | %s |", m[1], strings.Join(labels, ", "), strings.ReplaceAll(m[2], `\"`, `"`))
		if !slices.Contains(rows, row) { // one of several that differ in a label
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	table := "| metric | labels | what |\n| --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	doctest.Block(t, "../docs/metrics.md", "metrics", table, *update, "go test ./server -run TestMetricsTable -update")
}

// TestSentAndReceivedCountTheSameRoutes: what the receiver counts for a transport, the sender counts for it, too.
func TestSentAndReceivedCountTheSameRoutes(t *testing.T) {
	w := newVerbsTown(t, 2)
	a, b := w.start(0), w.start(1)
	w.up(a, b.Task())
	w.up(b, a.Task())
	w.exchange(1, b, a, 1) // over the channel
	shape, err := tensor.NewShape(1)
	if err != nil {
		t.Fatal(err)
	}
	value, err := tensor.FromSlice(shape, []int64{7})
	if err != nil {
		t.Fatal(err)
	}
	defer value.Release()
	long := strings.Repeat("n", 100_000) // no message of a channel has room for it
	if err := b.Send(2, a.Task().String(), long, value, false); err != nil {
		t.Fatal(err)
	}
	o := wait(t, a.recv(2, b.Task().String(), long), "the value")
	if o.err != nil {
		t.Fatal(o.err)
	}
	o.v.Tensor.Release()
	sent, received := metricsText(b.gatherer), metricsText(a.gatherer)
	for _, transport := range []string{"verbs", "grpc"} {
		for _, what := range []string{"tensors", "bytes"} {
			s := metric(t, sent, fmt.Sprintf(`tryst_sent_%s_total{peer=%q,transport=%q}`, what, a.Task(), transport))
			r := metric(t, received, fmt.Sprintf(`tryst_received_%s_total{peer=%q,transport=%q}`, what, b.Task(), transport))
			if s != r || s < 1 {
				t.Errorf("over %s %v %s were sent and %v received", transport, s, what, r)
			}
		}
	}
}
