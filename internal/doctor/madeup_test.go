package doctor

import (
	"context"
	"testing"

	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// named is a provider under another name.
type named struct {
	verbs.Provider
	name string
}

func (n named) Name() string { return n.name }

// TestAMadeUpProviderIsListed: the report has providers that Tryst does not have, by their rows alone.
func TestAMadeUpProviderIsListed(t *testing.T) {
	f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: "ether0"}}})
	defer f.Close()
	board := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: "board0", Link: verbs.LinkShared}}})
	defer board.Close()
	o := Options{Client: settings("verbs", server.RDMA{})}
	o.Client.Provider = server.ProviderAuto
	o.Rows = []providers.Row{
		{Name: "ether", Order: 3, New: func(providers.Options) verbs.Provider { return named{f.Provider("h"), "ether"} }},
		{
			Name: "blackboard", Link: verbs.LinkShared, Order: 1, Doctor: providers.Texts{Device: "what is written on a board", Missed: "buy chalk"},
			New: func(providers.Options) verbs.Provider { return named{board.Provider("h"), "blackboard"} },
		},
		{
			Name: "pigeons", Link: verbs.LinkTCP, Order: 2, Doctor: providers.Texts{Missed: "feed them"},
			New: func(providers.Options) verbs.Provider { return named{lost{}, "pigeons"} },
		},
	}
	o = o.OnThisHost()
	o.NoSystem = &verbs.Error{Op: "look for devices", Err: verbs.ErrUnavailable}
	o.Select = func(context.Context) (server.Selection, error) {
		return devices.Select(discovery.Want{}, devices.RDMAOpeners(o.Rows, o.providers().Takes, providers.Options{})...)
	}
	r := Examine(Gather(t.Context(), o))
	for check, words := range map[string]string{
		"device":     "ether0",
		"provider":   "RDMA by ether, a device in user space: the setting provider names it",
		"blackboard": "board0 works: what is written on a board",
		"pigeons":    "pigeons cannot be used: ",
		"routes":     "blackboard, ether (ether: before pigeons to a peer with an RDMA device of its kernel, otherwise only if a provider names it)",
	} {
		if got := lines(r, check, words); len(got) != 1 {
			t.Errorf("%s: %d lines with %q in %v", check, len(got), words, r)
		}
	}
	if got := lines(r, "pigeons", ""); len(got) != 1 || got[0].Do != "feed them" {
		t.Errorf("pigeons: %v", got)
	}
}

// lost is a provider without devices.
type lost struct{ verbs.Provider }

func (lost) Devices() ([]verbs.DeviceInfo, error) { return nil, nil }
