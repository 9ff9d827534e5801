package server

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// TestEverySettingHasAField: each setting has a field whose name is like its key, and each field a setting. Those of the
// command alone have none here.
func TestEverySettingHasAField(t *testing.T) {
	own := config.Bind(new(config.Own))
	var c Config
	var limits GraphLimits
	f := config.Bind(&c, &limits)
	for _, s := range config.Settings() {
		path := f.Path(s.Key)
		if (path == "") != (own.Path(s.Key) != "") {
			t.Errorf("setting %s: the field is %q, of the command alone: %q", s.Key, path, own.Path(s.Key))
		}
		name := strings.NewReplacer(".", "", "-", "", "publish", "").Replace(s.Key)
		if path != "" && !strings.HasSuffix(strings.ToLower(strings.ReplaceAll(path, ".", "")), name) {
			t.Errorf("setting %s has the field %s, which has another name", s.Key, path)
		}
	}
	if n := fieldsOf(reflect.TypeFor[Config]()) + fieldsOf(reflect.TypeFor[GraphLimits]()); n != len(f) {
		t.Errorf("there are %d fields, and %d have settings", n, len(f))
	}
}

// fieldsOf returns the number of fields, those of structs included.
func fieldsOf(typ reflect.Type) (n int) {
	for f := range typ.Fields() {
		if f.Type.Kind() == reflect.Struct {
			n += fieldsOf(f.Type)
		} else {
			n++
		}
	}
	return n
}

// TestErrorsNameFieldsInTheirAdvice: an importer knows no keys of the command. What an error quotes stays.
func TestErrorsNameFieldsInTheirAdvice(t *testing.T) {
	_, err := Config{TLS: TLS{Cert: "tls.ca"}}.check(config.ForServer, GraphLimits{})
	if err == nil || !strings.Contains(err.Error(), `Config.TLS.Cert "tls.ca": it requires the private key; set Config.TLS.Key, too`) {
		t.Error(err)
	}
	_, err = Config{}.check(config.ForServer, GraphLimits{MaxGraphs: -1})
	wantError(t, err, status.InvalidArgument, `GraphLimits.MaxGraphs "-1"`)
	f := config.Bind(new(Config), new(GraphLimits))
	for text, want := range map[string]string{
		"arena 3: raise arena-limit":                   "Config.RDMA.Arena 3: raise Config.RDMA.ArenaLimit",
		"x (metrics-address), or kept.total; the task": "x (Config.MetricsAddress), or Config.Limits.KeptTotal; the task",
		"tls.key /a/tls.key and tls.keys":              "Config.TLS.Key /a/tls.key and tls.keys",
	} {
		if got := withFields(text, f); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSettingsOfAProgramAreChecked: all that is wrong is reported.
func TestSettingsOfAProgramAreChecked(t *testing.T) {
	two := map[string][]string{"worker": {"h:1", "h:2"}}
	for _, c := range []Config{{}, {Cluster: two}} { // a program that does not name task 0 means it
		if _, err := c.check(config.ForServer, GraphLimits{}); err != nil {
			t.Error(err)
		}
	}
	c := Config{Cluster: two, Listen: "nowhere", GRPC: GRPC{ConnectionsPerPeer: 65, UnaryLimit: -1}, TLS: TLS{Cert: "c"}}
	_, err := c.check(config.ForServer, GraphLimits{})
	wantError(t, err, status.InvalidArgument,
		`Config.Listen "nowhere"`, `Config.GRPC.ConnectionsPerPeer "65": want 1 to 64`, `Config.GRPC.UnaryLimit "-1B"`, "1KiB to 2047MiB", `Config.TLS.Cert "c"`)
	all, err := Config{RDMA: RDMA{Retry: new(0)}}.check(config.ForServer, GraphLimits{})
	if err != nil || *all.RDMA.Retry != 0 {
		t.Errorf("a program cannot ask for no retries: %v", err)
	}
}

// TestServerOfAProgramListensAtTheAddressOfItsTask: a program that gives cluster and task as fields gets the same as from
// other sources.
func TestServerOfAProgramListensAtTheAddressOfItsTask(t *testing.T) {
	two := map[string][]string{"worker": {"h1:2", "h2:3"}}
	for _, tt := range []struct {
		c    Config
		want string
		task bool
	}{
		{Config{Cluster: two, Task: "/job:worker/task:1"}, "h2:3", true},
		{Config{Cluster: two}, "h1:2", false}, // the default task
		{Config{Cluster: two, Task: "/job:evaluator/task:0"}, "127.0.0.1:2222", true},
		{Config{Cluster: two, Listen: "127.0.0.1:2222"}, "127.0.0.1:2222", false},
		{Config{}, "127.0.0.1:2222", false},
	} {
		all, err := tt.c.check(config.ForServer, GraphLimits{})
		if err != nil {
			t.Error(err)
			continue
		}
		o := listenOptions(&all)
		if o.Listen != tt.want || o.InCluster != (tt.want[0] == 'h') || o.TaskIsSet != tt.task {
			t.Errorf("%v in %v: %+v; want %q", tt.c.Task, tt.c.Cluster, o, tt.want)
		}
	}
}

// TestNamesOfSettingsAreTheirValues: the constants are the values that the settings take, all of them.
func TestNamesOfSettingsAreTheirValues(t *testing.T) {
	names := map[string][]string{
		"transport": {TransportAuto, TransportGRPC, TransportVerbs},
		"fallback":  {FallbackGRPC, FallbackNone},
		"provider":  {ProviderAuto, ProviderLibibverbs, ProviderRoCE, ProviderTCP, ProviderSHM},
		"shm":       {SHMAuto, SHMOff},
		"poll":      {PollAdaptive, PollBusy, PollEvent},
		"digest":    {DigestXXH64, DigestSHA256},
		"deltas":    {DeltasAuto, DeltasNone},
	}
	f := config.Bind(new(Config))
	for _, s := range config.Settings() {
		if want, ok := names[s.Key]; ok {
			same(t, s.Values(), want...)
		} else if s.Type() == "name" && f.Path(s.Key) != "" && !s.IsText() {
			t.Errorf("setting %s has no constants for %q", s.Key, s.Values())
		}
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}
