package devices

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hosts are a host with RDMA and one with none, and a device in software.
type hosts struct {
	kernel, down, none, software providers.Opener
}

func newHosts(t *testing.T) hosts {
	t.Helper()
	provider := func(name, row string) (*verbstest.Host, providers.Opener) {
		f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: name}}})
		t.Cleanup(func() {
			if open := f.Counts(); open != (verbs.Counts{}) {
				t.Errorf("open of %s: %+v", name, open)
			}
			f.Close()
		})
		h := f.Host("h")
		as, _ := providers.Of(row)
		as.Inventory = nil
		return h, providers.Opener{Provider: h.Provider(), Row: as}
	}
	var s hosts
	_, s.kernel = provider("hard0", libibverbs.Name)
	h, down := provider("hard1", libibverbs.Name)
	h.NIC("hard1").PortDown(1)
	s.down = down
	s.none = providers.OpenerOf(hostWithout{roce.New(roce.Options{})})
	s.none.Row.Kernel = true
	_, s.software = provider("soft0", roce.Name)
	return s
}

// TestSelect: auto takes an active RDMA port if there is one, else the device in
// software, and says why; a name is looked up in both.
func TestSelect(t *testing.T) {
	s := newHosts(t)
	for _, tt := range []struct {
		name, provider string
		want           discovery.Want
		kernel         providers.Opener
		device, why    string
		unused         bool
		err            string // instead of a device
		is             error
	}{
		{name: "auto and an active port", provider: "auto", kernel: s.kernel, device: "hard0", why: "auto: an RDMA port is active"},
		{name: "auto without RDMA", provider: "auto", kernel: s.none, device: "soft0", why: "auto: look for devices: the kernel has no RDMA"},
		{name: "auto and a port that is down", provider: "auto", kernel: s.down, device: "soft0", why: "hard1 port 1: the port is DOWN", unused: true},
		{name: "libibverbs named", provider: "libibverbs", kernel: s.kernel, device: "hard0", why: "the setting provider names it"},
		{name: "libibverbs named, and the kernel has no device", provider: "libibverbs", kernel: s.none, err: "the kernel has no RDMA", is: verbs.ErrUnavailable},
		{name: "roce named", provider: "roce", kernel: s.kernel, device: "soft0", why: "the setting provider names it"},
		{name: "a name of the kernel's", provider: "auto", want: discovery.Want{Device: "hard0"}, kernel: s.kernel, device: "hard0"},
		{name: "a name of software", provider: "auto", want: discovery.Want{Device: "soft0"}, kernel: s.kernel, device: "soft0", why: `"soft0": it is no RDMA device`, unused: true},
		{name: "a name that nobody has", provider: "auto", want: discovery.Want{Device: "x"}, kernel: s.kernel, err: "there is hard0), no network device, and no address; and roce: ", is: verbs.ErrNotFound},
		{name: "a name of software for libibverbs", provider: "libibverbs", want: discovery.Want{Device: "soft0"}, kernel: s.kernel, err: "soft0", is: verbs.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			openers := map[string][]providers.Opener{"auto": {tt.kernel, s.software}, "libibverbs": {tt.kernel}, "roce": {s.software}}
			got, err := Select(tt.want, openers[tt.provider]...)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.Is(err, tt.is) {
					t.Errorf("%v; want %q, %v", err, tt.err, tt.is)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Choice.Device != tt.device || got.Device.Info().Name != tt.device || !strings.Contains(got.Why, tt.why) || (got.Unused != nil) != tt.unused {
				t.Errorf("%v: %q, unused %v; want %s: %q", got.Choice, got.Why, got.Unused, tt.device, tt.why)
			}
			if err := got.Device.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The time of a device in software is its own, unless one was set.
func TestAckTimeoutByProvider(t *testing.T) {
	soft, _ := providers.Of(roce.Name)
	kernel, _ := providers.Of(libibverbs.Name)
	for _, tt := range []struct {
		p    providers.Row
		set  time.Duration
		code uint8
	}{{soft, 0, 16}, {kernel, 0, 14}, {soft, time.Millisecond, 8}} {
		if got := verbs.TimeoutCode(timeoutOf(tt.set, tt.p)); got != tt.code {
			t.Errorf("%s with %v: code %d, want %d", tt.p.Name, tt.set, got, tt.code)
		}
	}
}

// TestQueuePairsByProvider: a device in software has one for each peer, others two,
// unless a number was set.
func TestQueuePairsByProvider(t *testing.T) {
	soft, _ := providers.Of(roce.Name)
	kernel, _ := providers.Of(libibverbs.Name)
	for _, tt := range []struct {
		p         providers.Row
		set, want int
	}{{soft, 0, 1}, {kernel, 0, 2}, {soft, 3, 3}, {kernel, 1, 1}} {
		if got := queuePairsOf(tt.set, tt.p); got != tt.want {
			t.Errorf("%s with %d: %d queue pairs, want %d", tt.p.Name, tt.set, got, tt.want)
		}
	}
}

// TestPathOfTheSettings: what queue pairs are brought up with is what was set, and what
// the choice is.
func TestPathOfTheSettings(t *testing.T) {
	row, _ := providers.Of(roce.Name)
	on := Selection{row: row, Choice: discovery.Choice{Port: 2, MTU: verbs.MTU1024}}
	retry := 5
	got := path(on, RDMA{PKeyIndex: 3, TrafficClass: 106, ServiceLevel: 4, Timeout: 500 * time.Millisecond, Retry: &retry})
	want := verbs.Path{
		Port: 2, MTU: verbs.MTU1024, PKeyIndex: 3, TrafficClass: 106, ServiceLevel: 4,
		Timeout: verbs.TimeoutCode(500 * time.Millisecond), Retry: 5, RNRRetry: rnrRetries,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	usual := RDMA{Retry: new(6)}
	if got := path(on, usual); got.Retry != 6 || got.TrafficClass != uint8(usual.TrafficClass) || got.Timeout != 16 { //nolint:gosec // a test's
		t.Errorf("unless something is set it is %+v", got)
	}
}

// hostWithout is the provider on a host without RDMA.
type hostWithout struct{ verbs.Provider }

func (hostWithout) Devices() ([]verbs.DeviceInfo, error) {
	return nil, verbs.Errorf("look for devices", "", verbs.ErrUnavailable, "the kernel has no RDMA")
}
