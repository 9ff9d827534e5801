//go:build rxe && linux && cgo

package roce_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// odd is a request that is unusual or invalid, for a queue pair that expects PSN 100
// with a path MTU of 1024.
type odd struct {
	name    string
	packets []oddPacket
	receive bool // post a receive of 2048 bytes
	// want are the responses, in order. The last one is for the probe that follows the
	// request.
	want []string
}

// oddPacket is a request. The test replaces 0 by a valid value.
type oddPacket struct {
	h       rocewire.Header
	payload int
	change  func(packet []byte) []byte // before the ICRC
}

// Responses of a responder. The probe is a request with a PSN far ahead, so that the
// NAK shows which PSN the queue pair expects; a failed queue pair does not respond.
func ack(psn int) string     { return fmt.Sprintf("ACK of %d", psn) }
func expects(psn int) string { return fmt.Sprintf("NAK: PSN sequence error of %d", psn) }
func invalid(psn int) string { return fmt.Sprintf("NAK: invalid request of %d", psn) }

// oddities lists the responses of the kernel's device.
func oddities() []odd {
	one := func(h rocewire.Header, payload int) []oddPacket { return []oddPacket{{h: h, payload: payload}} }
	changed := func(h rocewire.Header, payload int, change func([]byte) []byte) []oddPacket {
		return []oddPacket{{h, payload, change}}
	}
	set := func(i int, v byte) func([]byte) []byte {
		return func(b []byte) []byte { b[i] |= v; return b }
	}
	op := func(o rocewire.Opcode) rocewire.Header { return rocewire.Header{Op: o} }
	two := func(a, b rocewire.Opcode, payload int) []oddPacket {
		return []oddPacket{{h: rocewire.Header{Op: a, Length: 2000}, payload: 1024}, {h: rocewire.Header{Op: b, PSN: 101, Length: 2000}, payload: payload}}
	}
	return []odd{
		{"a valid write", one(op(rocewire.WriteOnly), 64), false, []string{ack(100), expects(101)}},
		{"congestion marks and reserved bits", changed(op(rocewire.WriteOnly), 64, func(b []byte) []byte { b[4] = 0xff; b[8] |= 0x7f; return b }), false, []string{ack(100), expects(101)}},
		{"pad bytes that are not 0", changed(op(rocewire.WriteOnly), 63, func(b []byte) []byte { b[len(b)-1] = 0xff; return b }), false, []string{ack(100), expects(101)}},
		{"an empty write with any key", one(rocewire.Header{Op: rocewire.WriteOnly, RKey: 0xbad}, 0), false, []string{ack(100), expects(101)}},
		{"no AckReq", changed(op(rocewire.WriteOnly), 64, func(b []byte) []byte { b[8] = 0; return b }), false, []string{expects(101)}},
		{"transport version 1", changed(op(rocewire.WriteOnly), 64, set(1, 1)), false, []string{expects(100)}},
		{"another partition", one(rocewire.Header{Op: rocewire.WriteOnly, PKey: 0x9234}, 64), false, []string{expects(100)}},
		{"another queue pair", one(rocewire.Header{Op: rocewire.WriteOnly, DestQP: 0xfffffe}, 64), false, []string{expects(100)}},
		{"a UD opcode", one(op(0x64), 64), false, []string{expects(100)}},
		{"a reserved opcode", one(op(0x15), 64), false, []string{expects(100)}},
		{"an RC opcode of a later specification", one(op(rocewire.AtomicWrite), 8), false, []string{expects(100)}},
		{"a truncated RETH", changed(op(rocewire.WriteOnly), 0, func(b []byte) []byte { return b[:12] }), false, []string{expects(100)}},
		{"a length that is not a multiple of 4", changed(rocewire.Header{Op: rocewire.WriteOnly, Length: 63}, 64, func(b []byte) []byte { return b[:len(b)-1] }), false, []string{invalid(100)}},
		{"a pad in a first packet", changed(rocewire.Header{Op: rocewire.WriteFirst, Length: 2000}, 1024, set(1, 0x10)), false, []string{invalid(100)}},
		{"a pad without payload", changed(op(rocewire.WriteOnly), 0, set(1, 0x30)), false, []string{expects(100)}},
		{"a middle without first", one(op(rocewire.WriteMiddle), 1024), false, []string{invalid(100)}},
		{"a last without first", one(op(rocewire.SendLast), 64), true, []string{invalid(100)}},
		{"a write within a send", two(rocewire.SendFirst, rocewire.WriteMiddle, 1024), true, []string{ack(100), invalid(101)}},
		{"a first within a message", two(rocewire.WriteFirst, rocewire.WriteFirst, 1024), false, []string{ack(100), invalid(101)}},
		{"an only within a message", two(rocewire.WriteFirst, rocewire.SendOnly, 64), true, []string{ack(100), invalid(101)}},
		{"a last without payload", two(rocewire.WriteFirst, rocewire.WriteLast, 0), false, []string{ack(100), invalid(101)}},
		{"a last with more than is left", two(rocewire.WriteFirst, rocewire.WriteLast, 980), false, []string{ack(100), invalid(101)}},
		{"a last with less than is left", two(rocewire.WriteFirst, rocewire.WriteLast, 972), false, []string{ack(100), invalid(101)}},
		{"a valid last", two(rocewire.WriteFirst, rocewire.WriteLast, 976), false, []string{ack(100), ack(101), expects(102)}},
		{"a first of half an MTU", one(rocewire.Header{Op: rocewire.WriteFirst, Length: 2000}, 512), false, []string{invalid(100)}},
		{"an only of more than an MTU", one(op(rocewire.WriteOnly), 1028), false, []string{invalid(100)}},
		{"a payload longer than the RETH gives", one(rocewire.Header{Op: rocewire.WriteOnly, Length: 60}, 64), false, []string{invalid(100)}},
		{"a write of more than 2 GiB", one(rocewire.Header{Op: rocewire.WriteFirst, Length: 1<<31 + 4}, 1024), false, []string{"NAK: remote access error of 100"}},
		{"payload in a READ request", one(rocewire.Header{Op: rocewire.ReadRequest, Length: 64}, 64), false, []string{ack(100), expects(101)}},
		{"an atomic that is not aligned", one(rocewire.Header{Op: rocewire.FetchAdd, Addr: 4}, 0), false, []string{invalid(100)}},
		{"a PSN that is ahead", one(rocewire.Header{Op: rocewire.WriteOnly, PSN: 101}, 64), false, []string{expects(100)}},
		{"a PSN that is behind", one(rocewire.Header{Op: rocewire.WriteOnly, PSN: 99}, 64), false, []string{ack(0xffffff), expects(100)}},
		{"a PSN half a circle behind", one(rocewire.Header{Op: rocewire.WriteOnly, PSN: (100 - 1<<23) & 0xffffff}, 64), false, []string{ack(0xffffff), expects(100)}},
		{"an immediate without receive", one(op(rocewire.WriteOnlyImm), 64), false, []string{"RNR NAK, 10.24ms of 100", expects(100)}},
		{"an empty immediate without receive", one(op(rocewire.WriteOnlyImm), 0), false, []string{"RNR NAK, 10.24ms of 100", expects(100)}},
		{"an invalidate with another key", one(rocewire.Header{Op: rocewire.SendOnlyInv, Invalidate: 0xbad}, 64), true, []string{ack(100)}},
		{"an acknowledgement of nothing", one(rocewire.Header{Op: rocewire.Ack, Syndrome: rocewire.AckUnlimited}, 0), false, []string{expects(100)}},
		{"a CNP", one(op(rocewire.CNP), 0), false, []string{expects(100)}},
	}
}

// TestRxeAnswersToOddPackets records how the kernel's responder reacts to packets that
// a requester seldom sends, as a baseline for the responder of verbs/roce.
func TestRxeAnswersToOddPackets(t *testing.T) {
	n := newCable(t)
	theirs, ours := kernelAddrs[0].Addr(), ourAddrs[0].Addr()
	s := n.newSocket(t, ours)
	for i, o := range oddities() {
		t.Run(o.name, func(t *testing.T) {
			k := newKernel(t, kernelDevice, theirs, 1<<16)
			qpn := verbs.QPN(0x100 + i)
			k.connect(verbs.MTU1024, verbs.Endpoint{QPN: qpn, PSN: 100, GID: verbs.GIDFromAddr(ours)})
			if o.receive {
				k.recv(verbs.RecvWR{ID: 1, SGL: k.sge(0, 2048)})
			}
			// fill replaces 0 by a valid value.
			fill := func(h rocewire.Header, payload int) rocewire.Header {
				h.MigReq, h.AckReq = true, true
				h.Addr += k.mr.Addr() + 4096
				if h.RKey == 0 {
					h.RKey = k.mr.RKey()
				}
				if h.DestQP == 0 {
					h.DestQP = k.qp.QPN()
				}
				if h.PKey == 0 {
					h.PKey = rocewire.DefaultPKey
				}
				if h.PSN == 0 {
					h.PSN = 100
				}
				if h.Length == 0 {
					h.Length = uint32(payload) //nolint:gosec // of a test
				}
				return h
			}
			for _, p := range o.packets {
				s.send(theirs, s.changed(theirs, fill(p.h, p.payload), bytes.Repeat([]byte{7}, p.payload), p.change))
			}
			s.send(theirs, s.packet(theirs, fill(rocewire.Header{Op: rocewire.ReadRequest, Length: 4, PSN: 0x1000}, 0), nil))
			var responses []string
			for within := testTimeout; ; {
				if len(responses) >= len(o.want) {
					within = quiet / 10
				}
				b, from, ok := s.next(within)
				if !ok {
					break
				}
				path := rocewire.NewPath(from, s.addr)
				var h rocewire.Header
				if _, err := h.Decode(b); err != nil || !path.Check(b, rocewire.IdentificationsAny) || h.DestQP != qpn {
					t.Errorf("got the packet %x (%v), want a valid response to QP %v", b, err, qpn)
				}
				responses = append(responses, fmt.Sprintf("%v of %d", h.Syndrome, h.PSN))
			}
			if !slices.Equal(responses, o.want) {
				t.Errorf("got responses %q, want %q", responses, o.want)
			}
		})
	}
}
