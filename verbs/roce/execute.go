package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

func (m *machine) handleSend(now time.Duration, h *rocewire.Header, payload []byte) {
	r := &m.resp
	if !m.fitsMessage(sendMessage, h, payload) {
		m.reject(rocewire.NAKInvalidRequest)
		return
	}
	if h.Op.StartsMessage() {
		if !m.consumeRecv() {
			return
		}
		r.message = message{kind: sendMessage}
	}
	w := r.recvs.At(r.consumed - 1)
	if r.message.received+uint64(len(payload)) > w.length {
		m.failRecv(verbs.StatusLocalLength, rocewire.NAKInvalidRequest)
		return
	}
	if len(payload) > 0 && !m.scatter(w.sgl, r.message.received, payload) {
		m.failRecv(verbs.StatusLocalProtection, rocewire.NAKRemoteOperation)
		return
	}
	r.message.received += uint64(len(payload))
	if h.Op.EndsMessage() {
		if h.Op.HasIeth() && !m.keys.InvalidateLocked(h.Invalidate, m) {
			m.failRecv(verbs.StatusRemoteInvalidRequest, rocewire.NAKInvalidRequest)
			return
		}
		m.completeRecv(verbs.WC{Op: verbs.WCRecv, Len: uint32(r.message.received), HasImm: h.Op.HasImm(), Imm: h.Imm}, h.Solicited) //nolint:gosec // at most the length of the receive
	}
	m.acceptPacket(now, h)
}

func (m *machine) handleWrite(now time.Duration, h *rocewire.Header, payload []byte) {
	r := &m.resp
	if m.access&verbs.AccessRemoteWrite == 0 || !m.fitsMessage(writeMessage, h, payload) {
		m.reject(rocewire.NAKInvalidRequest)
		return
	}
	w := r.message
	if h.Op.StartsMessage() {
		w = message{kind: writeMessage, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length)}
	}
	n := uint64(len(payload))
	if w.length > maxMessage || w.received+n > w.length || h.Op.EndsMessage() != (w.received+n == w.length) {
		m.reject(rocewire.NAKInvalidRequest)
		return
	}
	// An empty WRITE needs no key (specification, volume 1, 9.7.5.2.4). Each packet
	// checks the whole range, since the region may have been closed in between.
	var mem []byte
	if w.length > 0 {
		var ok bool
		if mem, ok = m.keys.GrantedLocked(m.domain, m, w.addr, w.length, w.rkey, verbs.AccessRemoteWrite); !ok {
			m.reject(rocewire.NAKRemoteAccess)
			return
		}
	}
	if h.Op.HasImm() && !m.consumeRecv() {
		return
	}
	copy(mem[w.received:], payload)
	w.received += n
	r.message = w
	if h.Op.HasImm() {
		m.completeRecv(verbs.WC{Op: verbs.WCRecvWrite, HasImm: true, Imm: h.Imm, Len: uint32(w.length)}, h.Solicited) //nolint:gosec // 32 bits on the wire
	}
	m.acceptPacket(now, h)
}

// checkRead returns the NAK for a READ that must not be executed, 0 for a valid READ.
func (m *machine) checkRead(h *rocewire.Header) rocewire.Syndrome {
	if m.access&verbs.AccessRemoteRead == 0 || m.resp.maxReadAtomic == 0 || h.Length > maxMessage {
		return rocewire.NAKInvalidRequest
	}
	if h.Length > 0 {
		if _, ok := m.keys.GrantedLocked(m.domain, m, h.Addr, uint64(h.Length), h.RKey, verbs.AccessRemoteRead); !ok {
			return rocewire.NAKRemoteAccess
		}
	}
	return 0
}

func (m *machine) handleRead(h *rocewire.Header) {
	r := &m.resp
	if s := m.checkRead(h); s != 0 {
		m.reject(s)
		return
	}
	if !r.makeSpace() {
		m.reject(rocewire.NAKInvalidRequest)
		return
	}
	r.completed = (r.completed + 1) & psnMask
	m.queueResponse(response{number: r.expected, read: true, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length)})
	r.expected += m.packetsOf(uint64(h.Length))
	m.supersedeAck()
}

func (m *machine) handleAtomic(h *rocewire.Header) {
	r := &m.resp
	if m.access&verbs.AccessRemoteAtomic == 0 || h.Addr%8 != 0 || !r.makeSpace() {
		m.reject(rocewire.NAKInvalidRequest)
		return
	}
	mem, ok := m.keys.GrantedLocked(m.domain, m, h.Addr, 8, h.RKey, verbs.AccessRemoteAtomic)
	if !ok {
		m.reject(rocewire.NAKRemoteAccess)
		return
	}
	old := m.keys.FetchAndUpdate(mem, func(old uint64) uint64 {
		switch {
		case h.Op == rocewire.FetchAdd:
			return old + h.Swap
		case old == h.Compare:
			return h.Swap
		}
		return old
	})
	r.atomics[r.numAtomics%maxReadAtomic] = atomicResult{number: r.expected, value: old, valid: true}
	r.numAtomics++
	r.completed = (r.completed + 1) & psnMask
	m.queueResponse(response{number: r.expected, value: old})
	r.expected++
	m.supersedeAck()
}
