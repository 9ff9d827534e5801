package wire_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// opcodes are all opcodes of the package, with the properties of their packets by table
// 38 of the specification (and annexes A17 and A19).
var opcodes = []struct {
	number  uint8
	op      wire.Opcode
	headers string // after the BTH, in order
	len     int    // of all headers
	part    string // position in the message: first, middle, last, only
	kind    string // request or response
	name    string
}{
	{0x00, wire.SendFirst, "payload", 12, "first", "request", "SEND First"},
	{0x01, wire.SendMiddle, "payload", 12, "middle", "request", "SEND Middle"},
	{0x02, wire.SendLast, "payload", 12, "last", "request", "SEND Last"},
	{0x03, wire.SendLastImm, "imm payload", 16, "last", "request", "SEND Last with Immediate"},
	{0x04, wire.SendOnly, "payload", 12, "only", "request", "SEND Only"},
	{0x05, wire.SendOnlyImm, "imm payload", 16, "only", "request", "SEND Only with Immediate"},
	{0x06, wire.WriteFirst, "reth payload", 28, "first", "request", "RDMA WRITE First"},
	{0x07, wire.WriteMiddle, "payload", 12, "middle", "request", "RDMA WRITE Middle"},
	{0x08, wire.WriteLast, "payload", 12, "last", "request", "RDMA WRITE Last"},
	{0x09, wire.WriteLastImm, "imm payload", 16, "last", "request", "RDMA WRITE Last with Immediate"},
	{0x0a, wire.WriteOnly, "reth payload", 28, "only", "request", "RDMA WRITE Only"},
	{0x0b, wire.WriteOnlyImm, "reth imm payload", 32, "only", "request", "RDMA WRITE Only with Immediate"},
	{0x0c, wire.ReadRequest, "reth", 28, "only", "request", "RDMA READ Request"},
	{0x0d, wire.ReadResponseFirst, "aeth payload", 16, "first", "response", "RDMA READ Response First"},
	{0x0e, wire.ReadResponseMiddle, "payload", 12, "middle", "response", "RDMA READ Response Middle"},
	{0x0f, wire.ReadResponseLast, "aeth payload", 16, "last", "response", "RDMA READ Response Last"},
	{0x10, wire.ReadResponseOnly, "aeth payload", 16, "only", "response", "RDMA READ Response Only"},
	{0x11, wire.Ack, "aeth", 16, "only", "response", "Acknowledge"},
	{0x12, wire.AtomicAck, "aeth atomicAck", 24, "only", "response", "ATOMIC Acknowledge"},
	{0x13, wire.CompareSwap, "atomic", 40, "only", "request", "CmpSwap"},
	{0x14, wire.FetchAdd, "atomic", 40, "only", "request", "FetchAdd"},
	{0x16, wire.SendLastInv, "ieth payload", 16, "last", "request", "SEND Last with Invalidate"},
	{0x17, wire.SendOnlyInv, "ieth payload", 16, "only", "request", "SEND Only with Invalidate"},
	{0x1c, wire.Flush, "feth reth", 32, "only", "request", "FLUSH"},
	{0x1d, wire.AtomicWrite, "reth payload", 28, "only", "request", "ATOMIC WRITE"},
	{0x81, wire.CNP, "", 28, "only", "", "CNP"},
}

func TestOpcodes(t *testing.T) {
	listed := make(map[wire.Opcode]bool)
	for _, o := range opcodes {
		listed[o.op] = true
		if uint8(o.op) != o.number {
			t.Errorf("%v is 0x%02x, want 0x%02x", o.op, uint8(o.op), o.number)
		}
		if o.op.String() != o.name {
			t.Errorf("0x%02x is called %q, want %q", o.number, o.op, o.name)
		}
		if n := o.op.HeaderLen(); n != o.len || n > wire.MaxHeaderLen {
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
		op := wire.Opcode(i)
		if op.Known() != listed[op] {
			t.Errorf("%v: known %v", op, op.Known())
		}
		in := func(from, to wire.Opcode) bool { return from <= op && op <= to }
		for name, is := range map[string][2]bool{
			"send":          {op.IsSend(), in(wire.SendFirst, wire.SendOnlyImm) || in(wire.SendLastInv, wire.SendOnlyInv)},
			"write":         {op.IsWrite(), in(wire.WriteFirst, wire.WriteOnlyImm)},
			"read response": {op.IsReadResponse(), in(wire.ReadResponseFirst, wire.ReadResponseOnly)},
			"atomic":        {op.IsAtomic(), in(wire.CompareSwap, wire.FetchAdd)},
		} {
			if is[0] != is[1] {
				t.Errorf("%v is a %s: %v", op, name, is[0])
			}
		}
		if !listed[op] && (op.Request() || op.Response() || op.StartsMessage() || op.EndsMessage() || op.HeaderLen() != wire.BTHLen) {
			t.Errorf("%v, which is unknown, is something", op)
		}
	}
	if s := wire.Opcode(0x15).String(); s != "opcode 0x15" {
		t.Errorf("an unknown opcode is called %q", s)
	}
}
