package rocetest_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
)

func golden(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("../rocewire/testdata/rxe.pcap")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPcapRoundTrip(t *testing.T) {
	want := []rocetest.Record{{0, []byte("first")}, {time.Hour + 5*time.Microsecond, nil}, {time.Hour, []byte("third")}}
	var b bytes.Buffer
	if err := rocetest.WritePcap(&b, want); err != nil {
		t.Fatal(err)
	}
	want[1].Frame = []byte{}
	if got, err := rocetest.ReadPcap(b.Bytes()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	// A file of another program is the same after reading and writing it.
	records, err := rocetest.ReadPcap(golden(t))
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := rocetest.WritePcap(&b, records); err != nil || !bytes.Equal(b.Bytes(), golden(t)) {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

func TestPcapErrors(t *testing.T) {
	var b bytes.Buffer
	if err := rocetest.WritePcap(&b, []rocetest.Record{{0, []byte("frame")}}); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	with := func(at int, v byte) []byte { c := bytes.Clone(good); c[at] = v; return c }
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing":       {nil, "no capture"},
		"another magic": {with(0, 1), "no capture"},
		"no Ethernet":   {with(20, 101), "no capture"},
		"half a header": {good[:30], "ends within frame 1"},
		"half a frame":  {good[:len(good)-1], "ends within frame 1"},
		"cut frame":     {with(36, 9), "cut from 9 bytes to 5"},
	} {
		if _, err := rocetest.ReadPcap(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestCheckDetectsEachFault flips each bit of a packet of each kind.
func TestCheckDetectsEachFault(t *testing.T) {
	records, err := rocetest.ReadPcap(golden(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[rocewire.Opcode]bool)
	for _, r := range records {
		p, ok := rocetest.ParseFrame(r.Frame)
		h, _, err := p.Check()
		if !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		if len(p.Data) > 100 || seen[h.Op] {
			continue
		}
		seen[h.Op] = true
		p.Data = bytes.Clone(p.Data)
		for i := range len(p.Data) * 8 {
			if i/8 == 4 && i%8 >= 6 {
				continue // switches may set FECN and BECN
			}
			p.Data[i/8] ^= 1 << (i % 8)
			if _, _, err := p.Check(); err == nil {
				t.Errorf("%v: damage of bit %d is not detected", h.Op, i)
			}
			p.Data[i/8] ^= 1 << (i % 8)
		}
		if p.Identification++; p.To.Addr().Is4() {
			if _, _, err := p.Check(); err == nil {
				t.Errorf("%v: another identification is not detected", h.Op)
			}
		}
	}
	if len(seen) < 12 {
		t.Errorf("only %d kinds of packets", len(seen))
	}
}

func TestMissingOfRxe(t *testing.T) {
	records, err := rocetest.ReadPcap(golden(t))
	if err != nil {
		t.Fatal(err)
	}
	if m := rocetest.MissingOfRxe(records); len(m) > 0 {
		t.Errorf("missing: %v", m)
	}
	all := len(rocetest.MissingOfRxe(nil))
	if all != 2*(21+5) { // opcodes from SEND First to FetchAdd, and ACK with six syndromes
		t.Errorf("an empty capture misses %d", all)
	}
}

// FuzzFrame: no frame and no file causes a panic, and no packet extends beyond its
// frame.
func FuzzFrame(f *testing.F) {
	records, err := rocetest.ReadPcap(golden(f))
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range records {
		if len(r.Frame) < 100 {
			f.Add(r.Frame)
		}
	}
	f.Add(golden(f)[:1000])
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := rocetest.ParseFrame(b); ok {
			if !bytes.Contains(b, p.Data) {
				t.Fatal("the packet is not a part of the frame")
			}
			if _, _, err := p.Check(); err == nil && len(p.Data) < rocewire.MinPacketLen {
				t.Fatal("a packet that is too short is good")
			}
		}
		if records, err := rocetest.ReadPcap(b); err == nil {
			var out bytes.Buffer
			if err := rocetest.WritePcap(&out, records); err != nil {
				t.Fatal(err)
			}
		}
	})
}
