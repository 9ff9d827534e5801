package rocewire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// full returns a header with a value in each field of its opcode, and in no other.
func full(op rocewire.Opcode) rocewire.Header {
	h := rocewire.Header{
		Op: op, Solicited: true, MigReq: true, AckReq: true, FECN: true, BECN: true, PKey: 0x8001, DestQP: 0xabcdef, PSN: 0xfedcba,
	}
	if op.HasReth() || op.HasAtomic() {
		h.Addr, h.RKey = 0x0102030405060708, 0x11121314
	}
	if op.HasReth() {
		h.Length = 0x21222324
	}
	if op.HasAtomic() {
		h.Swap, h.Compare = 0x3132333435363738, 0x4142434445464748
	}
	if op.HasAeth() {
		h.Syndrome, h.MSN = rocewire.NAKRemoteAccess, 0x515253
	}
	if op.HasAtomicAck() {
		h.Orig = 0x6162636465666768
	}
	if op.HasImm() {
		h.Imm = 0x71727374
	}
	if op.HasIeth() {
		h.Invalidate = 0x81828384
	}
	if op.HasFeth() {
		h.FlushKind = 0x91929394
	}
	return h
}

// packetOf returns a packet with a header and payload, and 4 bytes in place of the
// ICRC.
func packetOf(h rocewire.Header, payload string) []byte {
	b := append(h.Append(nil), payload...)
	return append(b, make([]byte, int(h.Pad)+rocewire.ICRCLen)...)
}

func TestEveryOpcodeRoundTrip(t *testing.T) {
	for _, o := range opcodes {
		for n := range 6 {
			if n > 0 && !o.op.HasPayload() || n%4 != 0 && !o.op.EndsMessage() {
				continue
			}
			h := full(o.op)
			h.Pad = rocewire.PadOf(n)
			payload := "hello"[:n]
			prefix := []byte("before")
			b := h.Append(prefix)
			if len(b) != len(prefix)+o.len || h.Len() != o.len {
				t.Errorf("%v: Append adds %d bytes, Len is %d, want %d", o.op, len(b)-len(prefix), h.Len(), o.len)
			}
			packet := packetOf(h, payload)
			if !bytes.Equal(b[len(prefix):], packet[:o.len]) {
				t.Errorf("%v: Append behind something makes other bytes", o.op)
			}
			got := rocewire.Header{Op: 99, Addr: 1, RKey: 1, Length: 1, Swap: 1, Compare: 1, Imm: 1, Invalidate: 1, Syndrome: 1, MSN: 1, Orig: 1, FlushKind: 1}
			p, err := got.Decode(packet)
			if err != nil || got != h || string(p) != payload {
				t.Errorf("%v with %d bytes: %+v, %q, %v", o.op, n, got, p, err)
			}
			if n > 0 && &p[0] != &packet[o.len] {
				t.Errorf("%v: the payload is a copy", o.op)
			}
		}
	}
}

// TestHeaderBytes shows the layouts as bytes, one packet for each extended header.
func TestHeaderBytes(t *testing.T) {
	const (
		bth       = " f0 8001 c0abcdef 80fedcba "
		reth      = "0102030405060708 11121314 21222324"
		atomicETH = "0102030405060708 11121314 3132333435363738 4142434445464748"
		aeth      = "62 515253"
	)
	for op, want := range map[rocewire.Opcode]string{
		rocewire.SendMiddle:       "01" + bth,
		rocewire.SendOnlyImm:      "05" + bth + "71727374",
		rocewire.WriteOnly:        "0a" + bth + reth,
		rocewire.WriteOnlyImm:     "0b" + bth + reth + "71727374",
		rocewire.ReadRequest:      "0c" + bth + reth,
		rocewire.ReadResponseLast: "0f" + bth + aeth,
		rocewire.Ack:              "11" + bth + aeth,
		rocewire.AtomicAck:        "12" + bth + aeth + "6162636465666768",
		rocewire.CompareSwap:      "13" + bth + atomicETH,
		rocewire.SendLastInv:      "16" + bth + "81828384",
		rocewire.Flush:            "1c" + bth + "91929394" + reth,
		rocewire.CNP:              "81" + bth + strings.Repeat("00", 16),
	} {
		h := full(op)
		h.Pad = 3
		want, err := hex.DecodeString(strings.ReplaceAll(want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%v:\n%x, want\n%x", op, got, want)
		}
	}
}

func TestEachFlagIsABitOfItsOwn(t *testing.T) {
	for name, f := range map[string]struct {
		h    rocewire.Header
		byte int
		bits byte
	}{
		"solicited": {rocewire.Header{Solicited: true}, 1, 0x80},
		"MigReq":    {rocewire.Header{MigReq: true}, 1, 0x40},
		"pad":       {rocewire.Header{Pad: 3}, 1, 0x30},
		"FECN":      {rocewire.Header{FECN: true}, 4, 0x80},
		"BECN":      {rocewire.Header{BECN: true}, 4, 0x40},
		"AckReq":    {rocewire.Header{AckReq: true}, 8, 0x80},
	} {
		f.h.Op = rocewire.SendOnly
		want := make([]byte, rocewire.BTHLen)
		want[0], want[f.byte] = byte(rocewire.SendOnly), f.bits
		if got := f.h.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
		var got rocewire.Header
		if _, err := got.Decode(packetOf(f.h, "")); f.h.Pad == 0 && (err != nil || got != f.h) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestAppendCutsWideFields(t *testing.T) {
	h := rocewire.Header{Op: rocewire.Ack, DestQP: 0xff000001, PSN: 0xff000002, MSN: 0xff000003, Pad: 4}
	if got, want := h.Append(nil), (&rocewire.Header{Op: rocewire.Ack, DestQP: 1, PSN: 2, MSN: 3}).Append(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestReservedBitsArePassedOver(t *testing.T) {
	h := full(rocewire.SendOnly)
	h.FECN, h.AckReq = false, false
	b := packetOf(h, "four")
	b[4] |= 0x3f
	b[8] |= 0x7f
	var got rocewire.Header
	if _, err := got.Decode(b); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeRejects(t *testing.T) {
	with := func(op rocewire.Opcode, pad uint8, payload int) []byte {
		h := full(op)
		h.Pad = pad
		b := append(h.Append(nil), make([]byte, payload)...)
		return append(b, 0, 0, 0, 0)
	}
	version := func(b []byte, v byte) []byte { b[1] |= v; return b }
	for name, c := range map[string]struct {
		packet []byte
		want   error
		silent bool // the header is not valid
	}{
		"nothing":                      {nil, rocewire.ErrShort, true},
		"a BTH alone":                  {with(rocewire.SendOnly, 0, 0)[:12], rocewire.ErrShort, true},
		"less than BTH and ICRC":       {with(rocewire.SendOnly, 0, 0)[:15], rocewire.ErrShort, true},
		"an odd length":                {with(rocewire.SendOnly, 0, 5), rocewire.ErrUnaligned, false},
		"TVer 1":                       {version(with(rocewire.SendOnly, 0, 4), 1), rocewire.ErrVersion, true},
		"TVer 15":                      {version(with(rocewire.SendOnly, 0, 4), 15), rocewire.ErrVersion, true},
		"UC":                           {with(0x20, 0, 4), rocewire.ErrOpcode, false},
		"UD":                           {with(0x64, 0, 4), rocewire.ErrOpcode, false},
		"a reserved opcode":            {with(0x15, 0, 4), rocewire.ErrOpcode, false},
		"a RETH that is cut":           {with(rocewire.WriteOnly, 0, 0)[:28], rocewire.ErrHeader, false},
		"an AtomicETH that is cut":     {with(rocewire.FetchAdd, 0, 0)[:40], rocewire.ErrHeader, false},
		"an AETH that is not there":    {with(rocewire.Ack, 0, 0)[:16], rocewire.ErrHeader, false},
		"a CNP that is cut":            {with(rocewire.CNP, 0, 0)[:28], rocewire.ErrHeader, false},
		"pad without payload":          {with(rocewire.SendOnly, 1, 0), rocewire.ErrPad, false},
		"pad in an ACK":                {with(rocewire.Ack, 1, 0), rocewire.ErrPad, false},
		"payload in an ACK":            {with(rocewire.Ack, 0, 4), rocewire.ErrPayload, false},
		"payload and pad in an ACK":    {with(rocewire.Ack, 3, 4), rocewire.ErrPayload, false},
		"payload in a READ request":    {with(rocewire.ReadRequest, 0, 4), rocewire.ErrPayload, false},
		"payload in an atomic":         {with(rocewire.FetchAdd, 0, 8), rocewire.ErrPayload, false},
		"payload in a FLUSH":           {with(rocewire.Flush, 0, 4), rocewire.ErrPayload, false},
		"pad in a first packet":        {with(rocewire.WriteFirst, 1, 256), rocewire.ErrPadInside, false},
		"pad in a middle packet":       {with(rocewire.SendMiddle, 3, 256), rocewire.ErrPadInside, false},
		"pad in the middle of a reply": {with(rocewire.ReadResponseMiddle, 2, 256), rocewire.ErrPadInside, false},
	} {
		var h rocewire.Header
		payload, err := h.Decode(c.packet)
		if err != c.want || payload != nil { //nolint:errorlint // the value itself, not wrapped
			t.Errorf("%s: %v and %d bytes, want %v", name, err, len(payload), c.want)
		}
		switch {
		case c.silent && h != rocewire.Header{}:
			t.Errorf("%s: a header %+v", name, h)
		case !c.silent && (h.DestQP != 0xabcdef || h.PSN != 0xfedcba || h.Op != rocewire.Opcode(c.packet[0])):
			t.Errorf("%s: the BTH is not set: %+v", name, h)
		case h.Addr != 0 || h.Imm != 0 || h.MSN != 0:
			t.Errorf("%s: fields beyond the BTH are set: %+v", name, h)
		}
	}
	// Each prefix of a valid packet is rejected or has less payload; none causes a
	// panic.
	for _, o := range opcodes {
		b := with(o.op, 0, 0)
		for n := range len(b) {
			if _, err := new(rocewire.Header).Decode(b[:n]); err == nil {
				t.Errorf("%v of %d bytes, cut to %d, is taken", o.op, len(b), n)
			}
		}
	}
}

func TestHeaderAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 64)
	good, bad := packetOf(full(rocewire.WriteOnlyImm), "data"), packetOf(full(0x15), "data")
	var err error
	n := testing.AllocsPerRun(100, func() {
		for _, o := range opcodes {
			h := rocewire.Header{Op: o.op}
			buf = h.Append(buf[:0])
		}
		var h rocewire.Header
		if _, err = h.Decode(good); err != nil {
			return
		}
		if _, e := h.Decode(bad); !errors.Is(e, rocewire.ErrOpcode) {
			err = e
		}
	})
	if n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

func TestPadOf(t *testing.T) {
	for n := range 20 {
		if p := int(rocewire.PadOf(n)); p > 3 || (n+p)%4 != 0 {
			t.Errorf("pad of %d bytes is %d", n, p)
		}
	}
}

// TestMaxOverhead compares the constant with all opcodes with payload.
func TestMaxOverhead(t *testing.T) {
	most := 0
	for _, o := range opcodes {
		if o.op.HasPayload() {
			most = max(most, o.len+3+rocewire.ICRCLen)
		}
	}
	if most != rocewire.MaxOverhead {
		t.Errorf("MaxOverhead is %d, want %d", rocewire.MaxOverhead, most)
	}
}
