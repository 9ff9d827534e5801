package rocewire_test

import (
	"os"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// captured returns the packets of testdata/rxe.pcap, which rxe sent.
func captured(t testing.TB) []rocetest.Packet {
	t.Helper()
	b, err := os.ReadFile("testdata/rxe.pcap")
	if err != nil {
		t.Fatal(err)
	}
	records, err := rocetest.ReadPcap(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range rocetest.MissingOfRxe(records) {
		t.Errorf("the capture has no %s", what)
	}
	packets := make([]rocetest.Packet, len(records))
	for i, r := range records {
		var ok bool
		if packets[i], ok = rocetest.ParseFrame(r.Frame); !ok {
			t.Fatalf("frame %d is no packet: %x", i+1, r.Frame)
		}
	}
	return packets
}

// TestGoldenBytes decodes packets of the kernel's rxe, encodes them again and checks
// the ICRC.
func TestGoldenBytes(t *testing.T) {
	for i, p := range captured(t) {
		h, payload, err := p.Check()
		if err != nil {
			t.Errorf("packet %d: %v", i+1, err)
			continue
		}
		if h.PKey != rocewire.DefaultPKey || h.Pad != rocewire.PadOf(len(payload)) || p.From.Addr().Is4() && !p.DontFragment {
			t.Errorf("packet %d: %+v", i+1, p)
		}
		path := rocewire.NewPath(p.From, p.To)
		if !path.Check(p.Data, rocewire.IdentificationsAny) {
			t.Errorf("packet %d has a wrong ICRC", i+1)
		}
		want := p.Identification < rocewire.IdentificationsRoCE
		if v := path.Check(p.Data, rocewire.IdentificationsRoCE); v != want {
			t.Errorf("packet %d with identification %d: Check of a roce device says %v", i+1, p.Identification, v)
		}
	}
}
