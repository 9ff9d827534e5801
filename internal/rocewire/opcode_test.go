package rocewire_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// opcodes are all opcodes of the package, with the properties of their packets by table
// 38 of the specification (and annexes A17 and A19).
var opcodes = []struct {
	number  uint8
	op      rocewire.Opcode
	headers string // after the BTH, in order
	len     int    // of all headers
	part    string // position in the message: first, middle, last, only
	kind    string // request or response
	name    string
}{
	{0x00, rocewire.SendFirst, "payload", 12, "first", "request", "SEND First"},
	{0x01, rocewire.SendMiddle, "payload", 12, "middle", "request", "SEND Middle"},
	{0x02, rocewire.SendLast, "payload", 12, "last", "request", "SEND Last"},
	{0x03, rocewire.SendLastImm, "imm payload", 16, "last", "request", "SEND Last with Immediate"},
	{0x04, rocewire.SendOnly, "payload", 12, "only", "request", "SEND Only"},
	{0x05, rocewire.SendOnlyImm, "imm payload", 16, "only", "request", "SEND Only with Immediate"},
	{0x06, rocewire.WriteFirst, "reth payload", 28, "first", "request", "RDMA WRITE First"},
	{0x07, rocewire.WriteMiddle, "payload", 12, "middle", "request", "RDMA WRITE Middle"},
	{0x08, rocewire.WriteLast, "payload", 12, "last", "request", "RDMA WRITE Last"},
	{0x09, rocewire.WriteLastImm, "imm payload", 16, "last", "request", "RDMA WRITE Last with Immediate"},
	{0x0a, rocewire.WriteOnly, "reth payload", 28, "only", "request", "RDMA WRITE Only"},
	{0x0b, rocewire.WriteOnlyImm, "reth imm payload", 32, "only", "request", "RDMA WRITE Only with Immediate"},
	{0x0c, rocewire.ReadRequest, "reth", 28, "only", "request", "RDMA READ Request"},
	{0x0d, rocewire.ReadResponseFirst, "aeth payload", 16, "first", "response", "RDMA READ Response First"},
	{0x0e, rocewire.ReadResponseMiddle, "payload", 12, "middle", "response", "RDMA READ Response Middle"},
	{0x0f, rocewire.ReadResponseLast, "aeth payload", 16, "last", "response", "RDMA READ Response Last"},
	{0x10, rocewire.ReadResponseOnly, "aeth payload", 16, "only", "response", "RDMA READ Response Only"},
	{0x11, rocewire.Ack, "aeth", 16, "only", "response", "Acknowledge"},
	{0x12, rocewire.AtomicAck, "aeth atomicAck", 24, "only", "response", "ATOMIC Acknowledge"},
	{0x13, rocewire.CompareSwap, "atomic", 40, "only", "request", "CmpSwap"},
	{0x14, rocewire.FetchAdd, "atomic", 40, "only", "request", "FetchAdd"},
	{0x16, rocewire.SendLastInv, "ieth payload", 16, "last", "request", "SEND Last with Invalidate"},
	{0x17, rocewire.SendOnlyInv, "ieth payload", 16, "only", "request", "SEND Only with Invalidate"},
	{0x1c, rocewire.Flush, "feth reth", 32, "only", "request", "FLUSH"},
	{0x1d, rocewire.AtomicWrite, "reth payload", 28, "only", "request", "ATOMIC WRITE"},
	{0x81, rocewire.CNP, "", 28, "only", "", "CNP"},
}

func TestOpcodes(t *testing.T) {
	listed := make(map[rocewire.Opcode]bool)
	for _, o := range opcodes {
		listed[o.op] = true
		if uint8(o.op) != o.number {
			t.Errorf("%v is 0x%02x, want 0x%02x", o.op, uint8(o.op), o.number)
		}
		if o.op.String() != o.name {
			t.Errorf("0x%02x is called %q, want %q", o.number, o.op, o.name)
		}
		if n := o.op.HeaderLen(); n != o.len || n > rocewire.MaxHeaderLen {
			t.Errorf("%v has %d bytes of headers, want %d", o.op, n, o.len)
		}
		headers := ""
		for _, h := range []struct {
			name string
			has  bool
		}{
			{"feth", o.op.HasFeth()},
			{"reth", o.op.HasReth()},
			{"atomic", o.op.HasAtomic()},
			{"aeth", o.op.HasAeth()},
			{"atomicAck", o.op.HasAtomicAck()},
			{"imm", o.op.HasImm()},
			{"ieth", o.op.HasIeth()},
			{"payload", o.op.HasPayload()},
		} {
			if h.has {
				headers += " " + h.name
			}
		}
		if headers != "" {
			headers = headers[1:]
		}
		if headers != o.headers {
			t.Errorf("%v has %q, want %q", o.op, headers, o.headers)
		}
		part := map[[2]bool]string{{true, false}: "first", {false, false}: "middle", {false, true}: "last", {true, true}: "only"}
		if got := part[[2]bool{o.op.StartsMessage(), o.op.EndsMessage()}]; got != o.part {
			t.Errorf("%v is a %s packet, want %s", o.op, got, o.part)
		}
		kind := map[[2]bool]string{{true, false}: "request", {false, true}: "response"}
		if got := kind[[2]bool{o.op.Request(), o.op.Response()}]; got != o.kind {
			t.Errorf("%v is a %q, want %q", o.op, got, o.kind)
		}
	}
	for i := range 256 {
		op := rocewire.Opcode(i)
		if op.Known() != listed[op] {
			t.Errorf("%v: known %v", op, op.Known())
		}
		in := func(from, to rocewire.Opcode) bool { return from <= op && op <= to }
		for name, is := range map[string][2]bool{
			"send":          {op.IsSend(), in(rocewire.SendFirst, rocewire.SendOnlyImm) || in(rocewire.SendLastInv, rocewire.SendOnlyInv)},
			"write":         {op.IsWrite(), in(rocewire.WriteFirst, rocewire.WriteOnlyImm)},
			"read response": {op.IsReadResponse(), in(rocewire.ReadResponseFirst, rocewire.ReadResponseOnly)},
			"atomic":        {op.IsAtomic(), in(rocewire.CompareSwap, rocewire.FetchAdd)},
		} {
			if is[0] != is[1] {
				t.Errorf("%v is a %s: %v", op, name, is[0])
			}
		}
		if !listed[op] && (op.Request() || op.Response() || op.StartsMessage() || op.EndsMessage() || op.HeaderLen() != rocewire.BTHLen) {
			t.Errorf("%v, which is unknown, is something", op)
		}
	}
	if s := rocewire.Opcode(0x15).String(); s != "opcode 0x15" {
		t.Errorf("an unknown opcode is called %q", s)
	}
}
