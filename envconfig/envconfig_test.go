package envconfig_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/envconfig"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

func TestLoad(t *testing.T) {
	t.Setenv("TRYST_LISTEN", "127.0.0.1:0")
	t.Setenv("TRYST_CLUSTER", "worker=a:1,7@b:2")
	t.Setenv("TRYST_KEEPALIVE_TIME", "20s")
	t.Setenv("TRYST_LOG_LEVEL", "debug")
	want := tryst.Config{
		Listen: "127.0.0.1:0", Cluster: map[string][]string{"worker": {"a:1", "7@b:2"}}, GRPC: tryst.GRPC{KeepaliveTime: 20 * time.Second},
	}
	t.Setenv("TRYST_TASK", "/job:worker/task:7")
	want.Task = "/job:worker/replica:0/task:7"
	if c, err := envconfig.Load(); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
	want.Listen, want.Task = "", "" // of servers
	c, err := envconfig.LoadClient()
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("for a client: got %+v, %v; want %+v", c, err, want)
	}
	cl, err := tryst.Dial(t.Context(), "127.0.0.1:1", c)
	if err != nil {
		t.Fatalf("Dial refuses it: %v", err)
	}
	_ = cl.Close(t.Context())
	t.Setenv("TRYST_KEEPALIVE_TIME", "soon")
	if _, err := envconfig.Load(); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "TRYST_KEEPALIVE_TIME") {
		t.Errorf("error %v, want InvalidArgument", err)
	}
}

// A server listens at its own address in the cluster, on all interfaces if need be. That is Serve's choice, so Listen stays unset.
func TestLoadLeavesTheAddressToServe(t *testing.T) {
	t.Setenv("TF_CONFIG", `{"cluster":{"worker":["192.0.2.77:1","192.0.2.78:0"]},"task":{"type":"worker","index":1}}`)
	c, err := envconfig.Load()
	if err != nil || c.Listen != "" || c.Task != "/job:worker/replica:0/task:1" || len(c.Cluster["worker"]) != 2 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// Each setting arrives in the field of its name, and in no other.
func TestEverySettingArrives(t *testing.T) {
	values := map[string]string{
		"host:port": "127.0.0.1:7", "path": "/x", "name": "x", "bool": "true", "number": "2", "size": "3MiB", "duration": "11s",
		"cluster": "worker=a:1", "task": "/job:worker/task:0",
		"transport": "verbs", "fallback": "none", "provider": "roce", "shm": "off", "rdma.mtu": "512", "rdma.traffic-class": "4", "rdma.queue-depth": "17",
		"eager-limit": "3KiB", "arena-limit": "4GiB", "poll": "busy", "digest": "sha256", "deltas": "none",
	}
	for _, s := range config.Settings() {
		if slices.Contains([]string{"config", "kernels", "log", "otel"}, strings.Split(s.Key, ".")[0]) {
			continue // of the command
		}
		t.Run(s.Key, func(t *testing.T) {
			value := values[s.Key]
			if value == "" {
				value = values[s.Type()]
			}
			if rest, ok := strings.CutPrefix(s.Key, "tls."); ok { // needs others
				for _, k := range []string{"CERT", "KEY", "CA"} {
					if k != strings.ToUpper(rest) {
						t.Setenv("TRYST_TLS_"+k, "/y")
					}
				}
			}
			t.Setenv(s.Env(), value)
			c, err := envconfig.Load()
			if err != nil {
				t.Fatal(err)
			}
			if c.TLS.Cert == "/y" {
				c.TLS.Cert = ""
			}
			if c.TLS.Key == "/y" {
				c.TLS.Key = ""
			}
			if c.TLS.CA == "/y" {
				c.TLS.CA = ""
			}
			limits, err := envconfig.LoadGraphLimits()
			if err != nil {
				t.Fatal(err)
			}
			got := append(set(reflect.ValueOf(c), ""), set(reflect.ValueOf(limits), "")...)
			name := strings.NewReplacer(".", "", "-", "", "publish", "").Replace(s.Key)
			if len(got) != 1 || !strings.HasSuffix(strings.ToLower(got[0]), name) {
				t.Errorf("%s=%s sets %q", s.Env(), value, got)
			}
		})
	}
}

// set returns the fields that do not have their zero value.
func set(v reflect.Value, path string) (names []string) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Struct:
			names = append(names, set(f, name)...)
		case !f.IsZero():
			names = append(names, name)
		}
	}
	return names
}
