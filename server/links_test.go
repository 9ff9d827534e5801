package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/server/internal/rdma"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// linked waits until the link to a task is as ok says, and returns it.
func linked(t *testing.T, links func() []Link, task string, what string, ok func(Link) bool) Link {
	t.Helper()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for end := time.Now().Add(soon); time.Now().Before(end); <-ticks.C {
		for _, l := range links() {
			if l.Task == task && ok(l) {
				return l
			}
		}
	}
	t.Fatalf("%s is not %s: %+v", task, what, links())
	return Link{}
}

func inState(s LinkState) func(Link) bool { return func(l Link) bool { return l.State == s } }

// TestLinksOfAClusterOverGRPC follows the link to a task that starts late, ends, and comes back.
func TestLinksOfAClusterOverGRPC(t *testing.T) {
	const reason = "the setting transport is grpc"
	at := twoPlaces(t, func(c *Config) { c.Transport = TransportGRPC })
	a := start(t, at(0), Options{})
	peer := "/job:worker/replica:0/task:1"
	if got, want := a.Links(), []Link{{Task: peer, Route: "grpc", State: LinkDown, Reason: reason}}; !reflect.DeepEqual(got, want) {
		t.Errorf("before anything is sent: %+v, want %+v", got, want)
	}
	early := a.recv(1, peer, "x")
	refused := linked(t, a.Links, peer, "refused", func(l Link) bool { return l.Error != "" })
	if !strings.Contains(refused.Error, at(1).Listen) || refused.Dialed != at(1).Listen || refused.State == LinkUp || !refused.Since.IsZero() {
		t.Errorf("%+v", refused)
	}

	before := time.Now()
	b := start(t, at(1), Options{})
	x := float(t, 5)
	defer x.Release()
	for step := range int64(2) {
		if err := b.Send(1+step, a.Task().String(), "x", x, false); err != nil {
			t.Fatal(err)
		}
	}
	wantFloat(t, wait(t, early, "the value"), 5)
	up := linked(t, a.Links, peer, "up", inState(LinkUp))
	if up.Since.Before(before) || up.Since.After(time.Now()) || up.Error != "" || up.Reason != reason || up.Breaks != 0 {
		t.Errorf("%+v", up)
	}
	// The other side has dialed nobody, but it has requests.
	if l := linked(t, b.Links, a.Task().String(), "up", inState(LinkUp)); l.Since.Before(before) || l.Dialed != "" {
		t.Errorf("%+v", l)
	}

	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	down := linked(t, a.Links, peer, "not up", func(l Link) bool { return l.State != LinkUp })
	if down.Since.Before(up.Since) || down.Breaks != 1 {
		t.Errorf("%+v", down)
	}
	b = start(t, at(1), Options{})
	if err := b.Send(3, a.Task().String(), "x", x, false); err != nil {
		t.Fatal(err)
	}
	wantFloat(t, wait(t, a.recv(3, peer, "x"), "the value after the restart"), 5)
	if l := linked(t, a.Links, peer, "up", inState(LinkUp)); l.Since.Before(down.Since) || l.Breaks != 1 {
		t.Errorf("%+v", l)
	}
}

// TestLinksOfAClientOverGRPC: a client knows its server by name, and the server knows its clients
// until they are forgotten.
func TestLinksOfAClientOverGRPC(t *testing.T) {
	s := start(t, settings(), Options{})
	if l := s.Links(); len(l) != 0 {
		t.Errorf("without peers: %+v", l)
	}
	x := float(t, 7)
	defer x.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w")); err != nil {
		t.Fatal(err)
	}
	c := dial(t, Config{Transport: TransportGRPC}, s.Addr().String())
	if l := c.Links(); len(l) != 1 || l[0].Task != s.Task().String() || l[0].State != LinkUp || l[0].Dialed != s.Addr().String() {
		t.Errorf("before the first receive: %+v", l)
	}
	for got, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
	}
	if l := c.Links(); len(l) != 1 || l[0].Task != s.Task().String() || l[0].State != LinkUp || l[0].Route != "grpc" {
		t.Errorf("after a pull: %+v", l)
	}
	linked(t, s.Links, c.Task().String(), "up", inState(LinkUp))
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	linked(t, s.Links, c.Task().String(), "gone", inState(LinkGone))
}

// TestLinksOverVerbs: a channel that is up has its device and addresses. When it breaks, the link
// says what carries tensors instead, and why.
func TestLinksOverVerbs(t *testing.T) {
	w := newVerbsTown(t, 2)
	before := time.Now()
	a, b := w.start(0), w.start(1)
	peer := b.Task().String()
	up := linked(t, a.Links, peer, "over verbs", func(l Link) bool { return l.Route == "verbs" })
	c := a.Choice()
	if up.State != LinkUp || up.Device != c.Device || up.LocalAddress != c.GID.String() || up.RemoteAddress != b.Choice().GID.String() ||
		up.QueuePairs < 1 || up.Generation < 1 || up.Reason != "" || up.Error != "" || up.Breaks != 0 || up.Since.Before(before) || up.Since.After(time.Now()) {
		t.Errorf("%+v", up)
	}
	w.exchange(1, a, b, 1)

	link := w.fabric.Wires("host0", "host1")
	link.Cut()
	down := linked(t, a.Links, peer, "over gRPC", func(l Link) bool { return l.Route == "grpc" && l.Reason != "" && l.State == LinkUp })
	if down.Breaks == 0 || down.Device+down.LocalAddress+down.RemoteAddress != "" || down.QueuePairs != 0 || down.Generation != 0 || !down.Since.After(up.Since) {
		t.Errorf("%+v", down)
	}
	if !strings.Contains(metricsOf(a), `tryst_route{peer="`+peer+`",reason="`) {
		t.Error("the metric has another reason")
	}
	link.Restore()
	again := linked(t, a.Links, peer, "over verbs", func(l Link) bool { return l.Route == "verbs" })
	if again.Generation <= up.Generation || !again.Since.After(down.Since) || again.Reason != "" {
		t.Errorf("%+v", again)
	}
}

// TestLinksWithoutFallback: while there is no channel, nothing carries tensors, whatever gRPC does.
func TestLinksWithoutFallback(t *testing.T) {
	w := newVerbsTown(t, 2)
	alone := func(c *Config) { c.Fallback = "none" }
	a := w.start(0, alone)
	peer := "/job:worker/replica:0/task:1"
	l := linked(t, a.Links, peer, "refused", func(l Link) bool { return l.Error != "" || strings.Contains(l.Reason, "refused") })
	if l.Route != "none" || l.State == LinkUp {
		t.Errorf("%+v", l)
	}
	w.start(1, alone)
	linked(t, a.Links, peer, "over verbs", func(l Link) bool { return l.Route == "verbs" && l.State == LinkUp })
}

// TestLinksOfAClientOverVerbs: both sides name the device, and the client that ends is gone.
func TestLinksOfAClientOverVerbs(t *testing.T) {
	w := newVerbsTown(t, 1, verbstest.DeviceOptions{Name: "mem0"})
	s := w.start(0)
	x := float(t, 7)
	defer x.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w")); err != nil {
		t.Fatal(err)
	}
	cfg := w.settings(0).ForClient()
	cfg.Cluster, cfg.Fallback = nil, FallbackNone // the channel may take longer than a receive waits for it
	c, err := Dial(t.Context(), cfg, s.Addr().String(), Options{Provider: w.provider(9)})
	if err != nil {
		t.Fatal(err)
	}
	over := s.sentOver(c.Task())
	if text := over(); text != "nothing" {
		t.Errorf("before the pull it went over %s", text)
	}
	var sum checkpoint.Summary
	for got, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{Summary: &sum}) {
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
	}
	if sum.Over("verbs") != 1 || sum.Over("grpc") != 0 || sum.Carried[0].Device == "" {
		t.Errorf("the pull says %+v", sum.Carried)
	}
	if text, want := over(), "verbs ("+s.rdma.Transport.Connections()[0].Device+")"; text != want {
		t.Errorf("the pull went over %s, want %s", text, want)
	}
	mine := c.Links()
	if len(mine) != 1 || mine[0].Task != s.Task().String() || mine[0].Route != "verbs" || mine[0].Device != sum.Carried[0].Device {
		t.Errorf("the client has %+v", mine)
	}
	theirs := linked(t, s.Links, c.Task().String(), "over verbs", func(l Link) bool { return l.Route == "verbs" })
	if theirs.LocalAddress != mine[0].RemoteAddress || theirs.RemoteAddress != mine[0].LocalAddress {
		t.Errorf("the client has %+v, the server %+v", mine[0], theirs)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	gone := linked(t, s.Links, c.Task().String(), "gone", inState(LinkGone))
	if gone.Route != "verbs" || gone.Reason != "" || gone.Device != theirs.Device || gone.Breaks != 1 {
		t.Errorf("%+v", gone)
	}
}

// TestStateOfALink: what the parts of a process know, and what the link says.
func TestStateOfALink(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	task := cluster.Task{Job: "worker", Index: 1}
	refused := status.New(status.Unavailable, "refused")
	type (
		verbs     = verbstransport.Connection
		dialed    = grpctransport.PeerState
		requester = delivery.RequesterState
	)
	for _, c := range []struct {
		name      string
		fallback  string // of a process with verbs
		verbs     *verbs
		dialed    dialed
		requester requester
		lost      transport.Unreached
		client    bool
		want      Link
	}{
		{name: "new", want: Link{State: LinkDown}},
		{name: "dialing", dialed: dialed{Connecting: true}, want: Link{State: LinkConnecting}},
		{name: "refused", dialed: dialed{Err: refused, Address: "h:1"}, want: Link{State: LinkDown, Error: "Unavailable: refused", Dialed: "h:1"}},
		{name: "looked for", lost: transport.Unreached{Seeking: true, Err: refused}, want: Link{State: LinkConnecting, Error: "Unavailable: refused"}},
		{name: "dialed", dialed: dialed{Up: true, Since: at(5), Breaks: 2}, want: Link{State: LinkUp, Since: at(5), Breaks: 2}},
		{name: "calls here", requester: requester{Connected: true, Since: at(6)}, want: Link{State: LinkUp, Since: at(6)}},
		{name: "both directions", dialed: dialed{Up: true, Since: at(5)}, requester: requester{Connected: true, Since: at(6)}, want: Link{State: LinkUp, Since: at(5)}},
		{name: "one direction has ended", dialed: dialed{Since: at(9)}, requester: requester{Connected: true, Since: at(6)}, want: Link{State: LinkUp, Since: at(6)}},
		{name: "both have ended", dialed: dialed{Since: at(9)}, requester: requester{Since: at(6)}, want: Link{State: LinkDown, Since: at(9)}},
		{name: "client that has left", requester: requester{Since: at(6)}, client: true, want: Link{State: LinkGone, Since: at(6)}},
		{
			name: "over gRPC while the handshake is tried again", fallback: "grpc",
			verbs: &verbs{State: verbstransport.StateHandshake, StateSince: at(9), Reason: refused}, dialed: dialed{Up: true, Since: at(5)},
			want: Link{State: LinkUp, Since: at(5), Reason: "Unavailable: refused"},
		},
		{
			name: "over gRPC after a channel", fallback: "grpc",
			verbs: &verbs{Since: at(7), StateSince: at(9), Reason: refused, Stats: verbstransport.Stats{Breaks: 1}}, dialed: dialed{Up: true, Since: at(5), Breaks: 9},
			want: Link{State: LinkUp, Since: at(7), Reason: "Unavailable: refused", Breaks: 1},
		},
		{
			name: "no fallback", fallback: "none",
			verbs: &verbs{Since: at(7), StateSince: at(9), Reason: refused}, dialed: dialed{Up: true, Since: at(5)},
			want: Link{Route: "none", State: LinkDown, Since: at(9), Reason: "Unavailable: refused"},
		},
		{name: "no fallback, and no channel was wanted yet", fallback: "none", dialed: dialed{Up: true, Since: at(5)}, want: Link{Route: "none", State: LinkDown, Since: at(5), Reason: "neither side has asked for a channel"}},
		{
			name: "over verbs", fallback: "grpc", verbs: &verbs{Verbs: true, State: verbstransport.StateUp, Since: at(7), StateSince: at(6), Device: "mlx5_0", QueuePairs: 2, Generation: 3},
			dialed: dialed{Err: refused}, lost: transport.Unreached{Err: refused},
			want: Link{Route: "verbs", State: LinkUp, Since: at(7), Device: "mlx5_0", LocalAddress: verbs{}.Local.String(), RemoteAddress: verbs{}.Remote.String(), QueuePairs: 2, Generation: 3},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, p := &node{}, peerStates{
				dialed: map[cluster.Task]dialed{task: c.dialed}, requester: map[cluster.Task]requester{task: c.requester},
				unreached: map[cluster.Task]transport.Unreached{task: c.lost},
			}
			c.want.Task, c.want.Route = task.String(), cmp.Or(c.want.Route, "grpc")
			if c.fallback == "" {
				c.want.Reason = "the setting transport is grpc"
			} else {
				n.rdma = &rdma.Part{Required: c.fallback == FallbackNone}
			}
			if c.verbs != nil {
				p.verbs = map[cluster.Task]verbs{task: *c.verbs}
			}
			if got := n.link(task, &p, !c.client); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestLinkInJSON: the names that programs read.
func TestLinkInJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		l    Link
		want string
	}{
		{Link{Task: "t", Route: "verbs", State: LinkUp, Since: at, Device: "mlx5_0", LocalAddress: "10.0.0.1", RemoteAddress: "10.0.0.2", QueuePairs: 2, Generation: 3, Breaks: 1},
			`{"task":"t","route":"verbs","state":"up","since":"2026-01-02T03:04:05Z","device":"mlx5_0","local_address":"10.0.0.1","remote_address":"10.0.0.2","queue_pairs":2,"generation":3,"breaks":1}`},
		{Link{Task: "t", Route: "grpc", State: LinkDown, Reason: "no device", Error: "Unavailable: refused", Dialed: "h:1"},
			`{"task":"t","route":"grpc","state":"down","reason":"no device","error":"Unavailable: refused","dialed":"h:1","breaks":0}`},
	} {
		got, err := json.Marshal(c.l)
		if err != nil || string(got) != c.want {
			t.Errorf("got %s, %v\nwant %s", got, err, c.want)
		}
	}
}

// TestLinksAreServed as JSON, beside the metrics.
func TestLinksAreServed(t *testing.T) {
	at := twoPlaces(t)
	c := at(0)
	c.MetricsAddress = "127.0.0.1:0"
	a := start(t, c, Options{})
	r, err := http.Get("http://" + a.http.Addr(httpserver.MetricsKey).String() + "/links")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var got []Link
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil || !reflect.DeepEqual(got, a.Links()) || len(got) != 1 {
		t.Errorf("got %+v, %v, want %+v", got, err, a.Links())
	}
	if typ := r.Header.Get("Content-Type"); typ != "application/json" {
		t.Errorf("the type is %q", typ)
	}
}
