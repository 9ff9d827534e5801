package tryst_test

import (
	"context"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// One literal has all that a task of a cluster over verbs needs, and no import but package tryst.
func TestConfigIsOneLiteral(t *testing.T) {
	s, err := tryst.Serve(t.Context(), tryst.Config{
		Listen:    "127.0.0.1:0",
		Cluster:   map[string][]string{"worker": {"127.0.0.1:1", "7@127.0.0.1:2"}},
		Task:      "/job:worker/task:7",
		Transport: "verbs",
		Provider:  "roce",
		RDMA:      tryst.RDMA{Retry: new(0)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if got := s.Task().String(); got != "/job:worker/replica:0/task:7" {
		t.Errorf("the task is %s", got)
	}
}

// Fields of verbs are valid with grpc, so that a flag can swap the transport.
func TestConfigOfVerbsIsValidWithGRPC(t *testing.T) {
	s, err := tryst.Serve(t.Context(), tryst.Config{
		Listen: "127.0.0.1:0", Transport: "grpc", Fallback: "none", RDMA: tryst.RDMA{Device: "mlx5_0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close(t.Context())
}

func TestServeRefusesAConfigWithItsField(t *testing.T) {
	for want, c := range map[string]tryst.Config{
		`Config.Cluster: cluster job "worker": entry 0, "nowhere"`: {Cluster: map[string][]string{"worker": {"nowhere"}}},
		`Config.Task: task name "worker"`:                          {Task: "worker"},
		`Config.Transport "rdma"`:                                  {Transport: "rdma"},
		`Config.RDMA.Port "300"`:                                   {RDMA: tryst.RDMA{Port: 300}},
		`Config.TLS.Cert "c"`:                                      {TLS: tryst.TLS{Cert: "c"}},
		`Config.Limits.KeptPerPeer "1B"`:                           {Limits: tryst.Limits{KeptPerPeer: 1}},
	} {
		_, err := tryst.Serve(t.Context(), c)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want InvalidArgument with %s", err, want)
		}
	}
}

// All that is wrong is one error, with a line for each.
func TestServeNamesAllThatIsWrong(t *testing.T) {
	_, err := tryst.Serve(t.Context(), tryst.Config{Listen: "nowhere", Limits: tryst.Limits{MaxWaiting: -1}})
	if err == nil || !strings.Contains(err.Error(), `Config.Listen "nowhere"`) || !strings.Contains(err.Error(), `Config.Limits.MaxWaiting "-1"`) {
		t.Errorf("error %v", err)
	}
}

// WithProvider is used in place of the provider that Config.Provider names.
func TestProviderOfTheProgram(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: "own0"}}})
	defer f.Close()
	h := f.Host("h")
	s, err := tryst.Serve(t.Context(), tryst.Config{
		Listen: "127.0.0.1:0", Transport: "verbs", Fallback: "none", RDMA: tryst.RDMA{Device: "own0"},
	}, tryst.WithProvider(h.Provider()))
	if err != nil {
		t.Fatal(err)
	}
	if f.Counts() == (verbs.Counts{}) {
		t.Error("nothing of the provider is open")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if open := f.Counts(); open != (verbs.Counts{}) {
		t.Errorf("open after Close: %+v", open)
	}
}

// Dial refuses what would have no effect in a client, and names it.
func TestDialRefusesSettingsOfServers(t *testing.T) {
	var config func(reflect.Value, string)
	serverOnly := map[string]bool{
		"Listen": true, "Task": true, "CollectiveLeader": true, "ShutdownTimeout": true, "MetricsAddress": true, "PprofAddress": true, "AddressFile": true,
		"GRPC.UnaryLimit": true, "GRPC.CacheRPCResponse": true, "TLS.RequireClientCert": true,
		"Publications.Digest": true, "Publications.MMap": true, "Publications.FileCache": true, "Publications.ReplacedPulls": true, "Publications.Deltas": true,
		"Limits.MaxWaiting": true, "Limits.MaxWaitingBytes": true, "Limits.KeptPerPeer": true, "Limits.KeptTotal": true, "Limits.SendBound": true,
		"CPUDevices": true,
	}
	var whole tryst.Config
	config = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, name := v.Field(i), path+v.Type().Field(i).Name
			if f.Kind() == reflect.Struct {
				config(f, name+".")
				continue
			}
			whole = tryst.Config{}
			switch f.Kind() {
			case reflect.String:
				f.SetString("/job:a/task:0") // valid for none but Task, which comes first
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(1)
			default: // no field of servers has another type
				continue
			}
			c, err := tryst.Dial(t.Context(), "127.0.0.1:1", whole)
			if err == nil {
				_ = c.Close(t.Context())
			}
			refused := err != nil && strings.Contains(err.Error(), "Config."+name+" is set")
			if refused != serverOnly[name] || refused && status.CodeOf(err) != status.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
			f.SetZero()
		}
	}
	config(reflect.ValueOf(&whole).Elem(), "")
}

func TestOptionsThatACallCannotUseAreRefused(t *testing.T) {
	_, err := tryst.Dial(t.Context(), "127.0.0.1:1", tryst.Config{}, tryst.WithStatsHandlers(new(counter), nil))
	if status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("Dial with the handler of a server: %v", err)
	}
	_, err = tryst.Dial(t.Context(), "127.0.0.1:1", tryst.Config{}, nil)
	if status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("Dial with a nil option: %v", err)
	}
}

// counter counts calls by the tag that it gives them.
type counter struct{ calls chan string }

func (c *counter) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	select {
	case c.calls <- i.FullMethodName:
	default:
	}
	return ctx
}
func (c *counter) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counter) HandleConn(context.Context, stats.ConnStats)                       {}

func TestStatsHandlersSeeCalls(t *testing.T) {
	server, client := &counter{make(chan string, 8)}, &counter{make(chan string, 8)}
	s, err := tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0"}, tryst.WithStatsHandlers(server, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	c, err := tryst.Dial(t.Context(), s.Addr().String(), tryst.Config{}, tryst.WithStatsHandlers(nil, client))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for side, got := range map[string]chan string{"server": server.calls, "client": client.calls} {
		if m := <-got; m != "/tryst.Peers/Hello" {
			t.Errorf("the %s saw %s", side, m)
		}
	}
}

// Two servers with one Registerer would have the same names; a label keeps them apart. Close takes the metrics away.
func TestRegistererOfTwoServers(t *testing.T) {
	r := prometheus.NewRegistry()
	serve := func(r prometheus.Registerer) (*tryst.Server, error) {
		return tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0"}, tryst.WithRegisterer(r))
	}
	for task := range 2 {
		s, err := serve(prometheus.WrapRegistererWith(prometheus.Labels{"task": string(rune('0' + task))}, r))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if all, err := r.Gather(); task == 0 && (err != nil || len(all) != 0) { // the last to be closed
				t.Errorf("after Close: %d metrics, %v", len(all), err)
			}
		}()
	}
	if all, err := r.Gather(); err != nil || len(all) == 0 {
		t.Errorf("%d metrics, %v", len(all), err)
	}
	_, err := serve(prometheus.WrapRegistererWith(prometheus.Labels{"task": "0"}, r))
	if status.CodeOf(err) != status.AlreadyExists || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("a third server with the label of the first: %v", err)
	}
}

// heavy are modules that only the command needs.
var heavy = []string{
	"github.com/spf13/", "github.com/knadh/", "go.yaml.in/", "gopkg.in/yaml", "go.opentelemetry.io/", "github.com/grpc-ecosystem/",
}

func TestImportersGetNoModulesOfTheCommand(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.Lines(string(out)) {
		for _, h := range heavy {
			if strings.HasPrefix(p, h) {
				t.Errorf("package tryst depends on %s", strings.TrimSpace(p))
			}
		}
	}
	if !strings.Contains(string(out), "google.golang.org/grpc\n") {
		t.Errorf("the list of packages has no grpc, so it is not the one of package tryst:\n%s", out)
	}
}
