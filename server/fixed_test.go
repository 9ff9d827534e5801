package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// namedProvider is a provider under another name.
type namedProvider struct {
	verbs.Provider
	name string
	err  error // of Devices
}

// Name implements verbs.Provider.
func (p namedProvider) Name() string { return p.name }

// Devices implements verbs.Provider.
func (p namedProvider) Devices() ([]verbs.DeviceInfo, error) {
	if p.err != nil {
		return nil, p.err
	}
	return p.Provider.Devices()
}

// kindsTown is a cluster whose hosts have a device of each kind, in memory.
type kindsTown struct {
	*verbsTown
	fixed  map[string]*verbstest.Fabric // by provider
	broken map[string]error             // providers without a device
}

func newKindsTown(t *testing.T, n int) *kindsTown {
	t.Helper()
	w := &kindsTown{fixed: make(map[string]*verbstest.Fabric), broken: make(map[string]error)}
	for name, link := range map[string]verbs.LinkLayer{ProviderTCP: verbs.LinkTCP, ProviderSHM: verbs.LinkShared} {
		f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: name + "0", Link: link}}})
		w.fixed[name] = f
		t.Cleanup(func() {
			if open := f.Counts(); open != (verbs.Counts{}) {
				t.Errorf("open of %s: %+v", name, open)
			}
			f.Close()
		})
	}
	w.verbsTown = newVerbsTown(t, n)
	return w
}

// options has the devices of a host.
func (w *kindsTown) options(i int) Options {
	o := Options{Provider: w.provider(i), Allocator: tensortest.NewAllocator(w.t), rows: []providers.Row{}}
	for _, name := range []string{ProviderTCP, ProviderSHM} {
		row, _ := providers.Of(name)
		row.New = func(providers.Options) verbs.Provider {
			return namedProvider{w.fixed[name].Provider(fmt.Sprintf("host%d", i)), name, w.broken[name]}
		}
		o.rows = append(o.rows, row)
	}
	return o
}

func (w *kindsTown) start(i int, change ...func(*Config)) *VerbsServer {
	w.t.Helper()
	v, err := StartVerbs(w.t.Context(), w.settings(i, change...), w.options(i))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := v.Close(context.Background()); err != nil {
			w.t.Errorf("Close: %v", err)
		}
	})
	return v
}

// devicesOf returns the names of the devices that a server has open.
func devicesOf(v *VerbsServer) (names []string) {
	for _, s := range v.Devices() {
		names = append(names, s.Choice.Device)
	}
	return names
}

// TestProcessHasADeviceOfEachKind: those that the setting provider allows, and nothing else. Values
// reach a peer in any case.
func TestProcessHasADeviceOfEachKind(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"auto":         {func(*Config) {}, []string{"mem0", "tcp0", "shm0"}},
		"tcp":          {func(c *Config) { c.Provider = "tcp,libibverbs" }, []string{"mem0", "tcp0"}},
		"shm off":      {func(c *Config) { c.SHM = SHMOff }, []string{"mem0", "tcp0"}},
		"without both": {func(c *Config) { c.Provider = "roce" }, []string{"mem0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKindsTown(t, 2)
			a, b := w.start(0, c.change), w.start(1, c.change)
			if got := devicesOf(a); !slices.Equal(got, c.want) {
				t.Errorf("the devices are %q, want %q", got, c.want)
			}
			w.up(a, b.Task())
			w.exchange(1, a, b, 7)
		})
	}
}

// TestNamedDeviceMustOpen: a device that the setting provider names is an error if it does not work;
// auto goes without it, and says so.
func TestNamedDeviceMustOpen(t *testing.T) {
	w := newKindsTown(t, 2)
	w.broken[ProviderSHM] = errors.New("no memory can be shared here")
	var log logBuffer
	o := w.options(0)
	o.Logger = log.logger()
	v, err := StartVerbs(t.Context(), w.settings(0), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := devicesOf(v); !slices.Equal(got, []string{"mem0", "tcp0"}) {
		t.Errorf("the devices are %q", got)
	}
	if err := v.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if !log.has("provider=shm", "no memory can be shared here") {
		t.Error("the log does not say why there is no shared memory")
	}
	v, err = StartVerbs(t.Context(), w.settings(0, func(c *Config) { c.SHMDir = "/no/such" }), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if !log.has("level=WARN", "although shm-dir is set", "no memory can be shared here") {
		t.Error("the log does not warn that shm-dir has no effect")
	}
	_, err = StartVerbs(t.Context(), w.settings(0, func(c *Config) { c.Provider = "tcp,shm" }), w.options(0))
	wantError(t, err, status.FailedPrecondition, "provider shm: no memory can be shared here")
}

// TestEachKindOfDeviceHasAMetric: a NIC that is lost shows, although other devices carry tensors.
func TestEachKindOfDeviceHasAMetric(t *testing.T) {
	w := newKindsTown(t, 1)
	a := w.start(0, func(*Config) {})
	wantMetrics(t, a, `tryst_verbs_kind_up{over="rdma"} 1`, `tryst_verbs_kind_up{over="tcp"} 1`, `tryst_verbs_kind_up{over="shm"} 1`)
	w.nic(0).Remove()
	until(t, "the device is known to be gone", func() bool { return a.rdma.Finder.Lost() == 1 })
	wantMetrics(t, a, `tryst_verbs_kind_up{over="rdma"} 0`, `tryst_verbs_kind_up{over="tcp"} 1`, "tryst_verbs_device_up 1")
}

// TestWrongDirectoryIsAnError: a shm-dir that cannot be used is a wrong setting, also with auto.
func TestWrongDirectoryIsAnError(t *testing.T) {
	for _, provider := range []string{ProviderAuto, "tcp,shm"} {
		w := newKindsTown(t, 2)
		w.broken[ProviderSHM] = &verbs.Error{Op: "open", Err: fmt.Errorf("%w: %w", verbs.ErrUnavailable, &shm.DirError{Dir: "/no/such", Why: "it does not exist"})}
		_, err := StartVerbs(t.Context(), w.settings(0, func(c *Config) { c.SHMDir, c.Provider = "/no/such", provider }), w.options(0))
		wantError(t, err, status.InvalidArgument, "shm-dir /no/such: it does not exist")
	}
}

// TestLinksHaveEveryRoute: a link says over which kind of device tensors go, and for each other kind
// why they do not; so do the metrics.
func TestLinksHaveEveryRoute(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		over   string
		whys   map[string]string
	}{
		"all":     {func(*Config) {}, "shm", map[string]string{"rdma": "shm is the better route", "tcp": "shm is the better route"}},
		"shm off": {func(c *Config) { c.SHM = SHMOff }, "rdma", map[string]string{"shm": "neither side has it", "tcp": "rdma is the better route"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKindsTown(t, 2)
			a, b := w.start(0, c.change), w.start(1, c.change)
			peer := b.Task().String()
			l := linked(t, a.Links, peer, "reached over "+c.over, func(l Link) bool { return l.Over == c.over })
			if len(l.Routes) != 3 {
				t.Errorf("%+v", l)
			}
			for _, r := range l.Routes {
				if r.Used != (r.Over == c.over) || !strings.Contains(r.Reason, c.whys[r.Over]) || (r.Reason == "") != r.Used {
					t.Errorf("%+v, want %q used and the reasons %q", r, c.over, c.whys)
				}
			}
			metrics := metricsOf(a)
			for _, r := range l.Routes {
				want := fmt.Sprintf(`tryst_verbs_route{device="%s",over="%s",peer="%s"} %d`, r.Device, r.Over, peer, map[bool]int{true: 1}[r.Used])
				if !strings.Contains(metrics, want) {
					t.Errorf("the metrics do not have %s", want)
				}
			}
		})
	}
}
