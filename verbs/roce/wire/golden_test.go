package wire_test

import (
	"os"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/roce/wire"
	"github.com/tryst-rdma/tryst/verbs/roce/wire/wiretest"
)

// captured are the packets of testdata/rxe.pcap, which rxe made.
func captured(t testing.TB) []wiretest.Packet {
	t.Helper()
	b, err := os.ReadFile("testdata/rxe.pcap")
	if err != nil {
		t.Fatal(err)
	}
	records, err := wiretest.ReadPcap(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wiretest.MissingOfRxe(records) {
		t.Errorf("the capture has no %s", what)
	}
	packets := make([]wiretest.Packet, len(records))
	for i, r := range records {
		var ok bool
		if packets[i], ok = wiretest.ParseFrame(r.Frame); !ok {
			t.Fatalf("frame %d is no packet: %x", i+1, r.Frame)
		}
	}
	return packets
}

// TestGoldenBytes decodes what the kernel's rxe has sent, encodes it again, and
// checks the ICRC.
func TestGoldenBytes(t *testing.T) {
	for i, p := range captured(t) {
		h, payload, err := p.Check()
		if err != nil {
			t.Errorf("packet %d: %v", i+1, err)
			continue
		}
		if h.PKey != wire.DefaultPKey || h.Pad != wire.PadOf(len(payload)) || p.From.Addr().Is4() && !p.DontFragment {
			t.Errorf("packet %d: %+v", i+1, p)
		}
		path := wire.NewPath(p.From, p.To)
		if v := path.Check(p.Data, wire.IdentificationsAny); v != wire.Good {
			t.Errorf("packet %d is %v", i+1, v)
		}
		want := wire.Verdict(p.Identification < wire.IdentificationsRoCE)
		if v := path.Check(p.Data, wire.IdentificationsRoCE); v != want {
			t.Errorf("packet %d with identification %d is %v from a roce device", i+1, p.Identification, v)
		}
	}
}
