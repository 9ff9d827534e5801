package devices

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// TestAutoOpensOneProviderOfALinkLayer: of two for shared memory it takes the first that works. Those that the settings
// name are both opened, and the transport refuses the second.
func TestAutoOpensOneProviderOfALinkLayer(t *testing.T) {
	row := func(name string, link verbs.LinkLayer, broken bool) providers.Row {
		f := verbstest.NewFabric(verbstest.Options{Devices: []verbstest.DeviceOptions{{Name: name + "0", Link: link}}})
		t.Cleanup(func() {
			if open := f.Counts(); open != (verbs.Counts{}) {
				t.Errorf("open of %s: %+v", name, open)
			}
			f.Close()
		})
		p := f.Provider("h")
		if broken {
			p = hostWithout{p}
		}
		return providers.Row{Name: name, Link: link, New: func(providers.Options) verbs.Provider { return p }}
	}
	rows := []providers.Row{
		row("a", verbs.LinkShared, true), row("b", verbs.LinkShared, false), row("c", verbs.LinkTCP, false), row("d", verbs.LinkShared, false),
		row("rdma", verbs.LinkUnspecified, false),
	}
	for text, want := range map[string]string{"": "b0 c0", "d": "b0 c0 d0", "c b": "b0 c0"} {
		names := strings.Fields(text)
		f, err := OpenFixed(FixedOptions{
			Takes: func(string) bool { return true }, Named: func(p string) bool { return slices.Contains(names, p) },
			Rows: rows, Options: providers.Options{Logger: slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range f.Devices() {
			got = append(got, s.Choice.Device)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("named %q: %q, want %s", names, got, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
