package server

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestSelectForTakesTheDeviceOfAClient: of two devices, that of the route to the server, as Dial
// does; and for a server that of its own address.
func TestSelectForTakesTheDeviceOfAClient(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: "soft0"}, {Name: "soft1"}}})
	defer f.Close()
	p := f.Provider("h")
	for device, addr := range map[string]string{"soft0": "127.0.0.1", "soft1": "::1"} {
		f.Host("h").NIC(device).SetGID(1, 0, verbs.GIDFromAddr(netip.MustParseAddr(addr)))
	}
	rows := []providers.Row{
		{Name: "none", Order: 1, New: func(providers.Options) verbs.Provider { return noDevices{p} }},
		{Name: "soft", Order: 2, New: func(providers.Options) verbs.Provider { return p }},
	}
	for _, tt := range []struct{ listen, target, want string }{
		{"127.0.0.1:0", "127.0.0.1:1", "soft0"},
		{"127.0.0.1:0", "[::1]:1", "soft1"},
		{"[::1]:0", "", "soft1"},
		{"127.0.0.1:0", "", "soft0"},
	} {
		cfg := settings(func(c *Config) {
			c.Transport, c.Listen = "verbs", tt.listen
			c.RDMA.Arena, c.RDMA.ArenaLimit = 4<<20, 64<<20
		})
		s, err := selectFor(t.Context(), cfg, tt.target, rows, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Device.Close(); err != nil {
			t.Error(err)
		}
		if s.Choice.Device != tt.want || !s.Choice.Near {
			t.Errorf("to %q, listening on %s: %v, want %s", tt.target, tt.listen, s.Choice, tt.want)
		}
		if tt.target == "" {
			continue
		}
		cl, err := Dial(t.Context(), cfg.ForClient(), tt.target, Options{Provider: p})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := cl.Verbs(); !ok || got.Choice.Device != s.Choice.Device {
			t.Errorf("to %s Dial takes %v, and SelectFor %v", tt.target, got.Choice, s.Choice)
		}
		if err := cl.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := LocalAddrFor(t.Context(), settings(), "/job:x/task:0"); err == nil {
		t.Error("a task that is in no cluster has an address")
	}
}
